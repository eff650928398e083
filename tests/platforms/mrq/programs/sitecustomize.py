"""Writes the documents of all jobs at the end of a worker. MongoDB is replaced in mrq-config.py.

With MRQ_PLAIN_WORKER it also makes MRQ's own worker start: MRQ's last release calls `gevent.signal`, which is a module
since gevent 20. Heaptide's worker class does not need this.
"""

import atexit
import json
import os
import sys
import types


class CallableModule(types.ModuleType):
    def __call__(self, number, handler, *args, **kwargs):
        import gevent

        return gevent.signal_handler(number, handler, *args, **kwargs)


def write_documents(path):
    config = sys.modules["mrq.context"].get_current_config()
    documents = config["mongodb_jobs"].mrq_jobs.find()
    with open(path, "w") as file:
        json.dump(
            [
                {k: str(v) if k == "_id" else v for k, v in each.items() if not k.startswith("date")}
                for each in documents
            ],
            file,
            default=str,
        )


if os.environ.get("MRQ_PLAIN_WORKER"):
    import gevent.signal

    gevent.signal.__class__ = CallableModule

if os.environ.get("MRQ_DOCUMENTS"):
    atexit.register(write_documents, os.environ["MRQ_DOCUMENTS"])
