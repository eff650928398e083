"""Measures the cost of recording a real Airflow: its scheduler and a task, bare, with Heaptide and with memray.

    build/tools/bin/python bench/airflow_scheduler.py --rounds 5 --results bench/results
    build/tools/bin/python bench/airflow_scheduler.py --instructions --results bench/results

`make test-platforms PLATFORM=airflow` installs Airflow and memray in build/platforms/airflow. One process imports
Airflow and forks a process for each case, so the costs exclude the start of Airflow. The first command measures CPU
time in interleaved rounds and shows the best of each case. With --instructions, valgrind counts the instructions in
user space instead. Other load on the machine hardly changes these counts, so one round is enough.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import succeed

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parent / "build" / "platforms" / "airflow"
MEMRAY_FOLDER = ENVIRONMENT / "memray-package"
KEY = "AIRFLOW__PROFILING__"
COUNTED = re.compile(r"Collected : (\d+)")
SWITCH = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""
SCHEDULER = {f"{KEY}MEMRAY_TRACE_COMPONENTS": "scheduler"}
DETAILED = {**SCHEDULER, f"{KEY}MEMRAY_DETAILED_TRACING": "True"}
TASK = {f"{KEY}HEAPTIDE_TRACE_TASKS": "counted.*"}
# Title → what runs, the number of loops or rows, and tool → its environment. Tools named memray can import memray.
CASES: dict[str, tuple[str, int, dict[str, dict[str, str]]]] = {
    "5 loops of the scheduler": (
        "scheduler",
        5,
        {
            "bare": {},
            "bare again": {},
            "heaptide, sampled": {**SCHEDULER, f"{KEY}HEAPTIDE_MODE": "sampled"},
            "heaptide": SCHEDULER,
            "memray": SCHEDULER,
            "heaptide, detailed": DETAILED,
            "memray, detailed": DETAILED,
        },
    ),
    "a task without work": ("task", 0, {"bare": {}, "heaptide, sampled": TASK, "memray": {}}),
    "a task that parses 20,000 rows": (
        "task",
        20_000,
        {
            "bare": {},
            "bare again": {},
            "heaptide, sampled": TASK,
            "heaptide, exact": {**TASK, f"{KEY}HEAPTIDE_MODE": "exact"},
            "memray": {},
        },
    ),
}


def cases(only: str) -> list[dict[str, Any]]:
    """Return the cases as the program takes them."""
    return [
        {
            "case": [title, tool],
            "what": what,
            "number": number,
            "env": env,
            "path": [str(MEMRAY_FOLDER)] if "memray" in tool else [],
        }
        for title, (what, number, tools) in CASES.items()
        if only in ("", what)
        for tool, env in tools.items()
    ]


def run_cases(home: Path, chosen: list[dict[str, Any]], *wrapper: str) -> list[dict[str, Any]]:
    """Run the cases in one process, under a wrapper command if there is one."""
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        # No pause between loops: after a pause, the scheduler's work would depend on the clock.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0",
        # Select a task, so that Airflow loads the plugin with its listeners.
        **TASK,
        "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore",
    }
    command = [*wrapper, str(ENVIRONMENT / "bin" / "python"), str(HERE / "programs" / "airflow_cases.py"), str(home)]
    with (home / "log.txt").open("w") as log:
        done = subprocess.run(command, input=json.dumps(chosen), env=env, stdout=subprocess.PIPE, stderr=log, text=True)
    if done.returncode:
        sys.exit(f"the cases ended with {done.returncode}:\n{(home / 'log.txt').read_text()[-3000:]}")
    results: list[dict[str, Any]] = json.loads(done.stdout)
    failed = [each["case"] for each in results if each["code"]]
    if failed:
        sys.exit(f"{failed} failed:\n{(home / 'log.txt').read_text()[-3000:]}")
    return results


def measured(home: Path, chosen: list[dict[str, Any]], rounds: int) -> dict[tuple[str, str], float]:
    """Return the least CPU time of each case, in milliseconds."""
    best: dict[tuple[str, str], float] = {}
    for each in run_cases(home, chosen * rounds):
        case = tuple(each["case"])
        best[case] = min(each["cpu"] * 1000, best.get(case, 1e9))
    return best


def counted(home: Path, chosen: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Return the instructions of each case, in millions."""
    (home / "switch.c").write_text(SWITCH)
    succeed(["cc", "-shared", "-fPIC", "-o", home / "switch.so", home / "switch.c"])
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"]
    results = run_cases(home, chosen, *valgrind, f"--log-file={home}/counts.%p")
    counts = {}
    for each in results:
        found = COUNTED.findall((home / f"counts.{each['pid']}").read_text())
        counts[tuple(each["case"])] = int(found[-1]) / 1e6
    return counts


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default %(default)s)")
    parser.add_argument("--only", choices=["scheduler", "task"], default="", help="measure this alone")
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of measuring time")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="also write the table to this folder")
    wanted = parser.parse_args()
    if not MEMRAY_FOLDER.exists():
        parser.error("install Airflow and memray with `make test-platforms PLATFORM=airflow`")
    chosen = cases(wanted.only)
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        home = Path(scratch)
        succeed(["env", f"AIRFLOW_HOME={home}", ENVIRONMENT / "bin" / "airflow", "db", "migrate"])
        figures = counted(home, chosen) if wanted.instructions else measured(home, chosen, wanted.rounds)
    unit = "instructions" if wanted.instructions else "CPU time"
    symbol = "M" if wanted.instructions else "ms"
    rows = [["what", "tool", unit, "more than bare", "ratio"], ["---"] * 5]
    for (title, tool), figure in figures.items():
        bare = figures[title, "bare"]
        # The ratio to a task without work says nothing.
        ratio = f"{figure / bare:.3f}" if figure < 20 * bare else ""
        rows.append([title, tool, f"{figure:,.0f} {symbol}", f"{figure - bare:+,.0f} {symbol}", ratio])
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    print(table)
    if wanted.results:
        name = "airflow-instructions.md" if wanted.instructions else "airflow.md"
        how = "counted by valgrind" if wanted.instructions else f"best of {wanted.rounds} interleaved rounds"
        command = " ".join(["bench/airflow_scheduler.py", *(word for word in sys.argv[1:] if "results" not in word)])
        title = f"# Cost of recording Airflow: {unit}\n\nCreated by `{command}`: {how}. "
        text = f"{title}Airflow 3.3.2, {os.cpu_count()} cores, Linux {platform.release()}.\n\n{table}\n"
        (wanted.results / name).write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
