"""Runs Airflow's own decorator of components in a forked child per case. Prints one JSON object: case → result.

argv: a folder for the homes. Cases are read from standard input: name → {"component", "env", "before", "inside", "after",
"times"}.
"""

import json
import logging
import os
import sys

import airflow
from airflow.configuration import conf
from airflow.utils import memray_utils

TOP = sys.argv[1]


def run_case(name, case):
    home = os.path.join(TOP, name)
    os.makedirs(home, exist_ok=True)
    os.environ.update(case.get("env", {}))
    from heaptide.platforms.airflow import profiling

    memray_utils.AIRFLOW_HOME = home
    profiling._airflow_home = lambda: os.environ.get("CASE_HOME", home)
    profiling.current.cache_clear()
    logging.basicConfig(stream=open(os.path.join(home, "log"), "w"), level=logging.INFO, force=True)
    import structlog

    structlog.configure(logger_factory=structlog.stdlib.LoggerFactory(), wrapper_class=structlog.stdlib.BoundLogger)
    memray_utils.log = structlog.get_logger("memray_utils")
    if "before" in case:
        exec(case["before"], {"home": home})
    component = memray_utils.MemrayTraceComponents[case["component"]]
    results = []

    @memray_utils.enable_memray_trace(component=component)
    def run(value):
        global held
        held = bytes(3_000_000)
        results.append("heaptide._native" in sys.modules)
        exec(case.get("inside", ""), {"home": home})
        return value

    value = run(5)
    exec(case.get("after", ""), {"home": home})
    return {"value": value, "loaded": results[-1], "memray": "memray" in sys.modules}


def main():
    answers = {}
    for name, case in json.load(sys.stdin).items():
        for time in range(case.get("times", 1)):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    answer = run_case(name, case)
                except BaseException as error:
                    answer = {"raised": repr(error)}
                os.write(writing, json.dumps(answer).encode())
                logging.shutdown()
                os._exit(0)
            os.close(writing)
            with open(reading, "rb") as file:
                answers[name] = json.loads(file.read() or b'{"raised": "the process ended"}')
            os.waitpid(pid, 0)
    print(json.dumps(answers))


main()
