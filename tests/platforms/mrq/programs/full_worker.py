# The recipe of MRQ's page on memory leaks, with Python 3's name of urlparse, and without log.handler, which MRQ lacks.
# Be as close to a Worker environment as possible
import os

if "GEVENT_RESOLVER" not in os.environ:
    os.environ["GEVENT_RESOLVER"] = "ares"

from gevent import monkey

monkey.patch_all()

from mrq.context import setup_context, run_task, log, get_current_config
from mrq.utils import load_class_by_path
from guppy import hpy
import sys, urllib.parse, gc, re, linecache

hp = hpy()

setup_context(config_type="worker", extra={"greenlets": 10, "queues": ["jobs_raw"]})
worker_class = load_class_by_path(get_current_config()["worker_class"])
w = worker_class()
w.work_init()


def work_heap(max_jobs):
    gc.collect()
    hp.setrelheap()
    w.work_loop(max_jobs=max_jobs)
    # Clear some Python caches to clean the results
    urllib.parse.clear_cache()
    re.purge()
    linecache.clearcache()
    gc.collect()
    return hp.heap()


# Run a few jobs to eliminate side-effects from loading code and modules for the first time
work_heap(10)

# Now we can run a larger number of jobs
h = work_heap(1000)

print(h)
print(h[0].byvia)
print(h[0].byvia[0].referrers)
print(h[0].byvia[0].referrers.byvia)
sys.stdout.flush()
os._exit(0)
