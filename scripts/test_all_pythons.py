"""Runs the Python tests on every supported interpreter of this machine, and in the forky root if it lacks 3.14 or 3.15.

The forky root is a Debian forky system in a folder, which scripts/forky-root creates.

Two interpreters run at a time, each with a log in build/logs. The output contains the logs of failed runs and ends
with one line per version. If a version cannot be tested on this machine, a large warning appears and the run does not
fail.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes.util
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pythons import forky_versions, supported

REPOSITORY = Path(__file__).resolve().parent.parent
BUILD = REPOSITORY / "build"
SCRIPTS = REPOSITORY / "scripts"
FORKY_VERSIONS = forky_versions()
# Only this version runs the tests marked `once`, which do not depend on the version; if it is missing, the oldest does.
ONCE_VERSION = "3.12"
# Packages of the tools and libraries that tests use.
TOOLS = {"go": "golang-go", "strace": "strace"}
LIBRARIES = {"jemalloc": "libjemalloc2", "mimalloc": "libmimalloc2.0"}
# The tests take minutes, so a run that takes longer than this is stuck.
LIMIT_SECONDS = 45 * 60


@dataclass
class Run:
    """The tests of one interpreter: the command, and later its result."""

    version: str
    command: list[str]
    exit_code: int = 0
    seconds: float = 0.0

    @property
    def log(self) -> Path:
        """The path of the log."""
        return BUILD / "logs" / f"pytest-{self.version}.log"

    def verdict(self) -> str:
        """Return the summary line, with the last line of pytest or the reason why the run was stopped."""
        last = self.log.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
        state = "ok    " if self.exit_code == 0 else "FAILED"
        return f"Python {self.version:5} {state} {self.seconds:4.0f} s  {last[0].strip('= ')}"


def main() -> int:
    """Run and print all tests, and return 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True, help="the wheel under test, inside this repository")
    parser.add_argument("--only", metavar="3.N", help="test this version alone")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    options = parser.parse_args()
    wheel = options.wheel.resolve().relative_to(REPOSITORY)

    runs, missing = plan(wheel, options.pytest, options.only)
    if not runs:
        print(f"no CPython {options.only or '3.10 or newer'} was found here to test with", file=sys.stderr)
        return 1
    (BUILD / "logs").mkdir(parents=True, exist_ok=True)
    install_tools()
    print("pytest on Python " + ", ".join(run.version for run in runs), flush=True)
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for run in pool.map(execute, runs):
            alone = len(runs) == 1
            if run.exit_code or alone:
                print(f"\n--- {run.log.relative_to(REPOSITORY)} ---\n{run.log.read_text(errors='replace')}", flush=True)
    print("\nPython tests, by version (logs in build/logs):")
    for run in runs:
        print("  " + run.verdict())
    for message in missing:
        banner(message)
    return 1 if any(run.exit_code for run in runs) else 0


def install_tools() -> None:
    """Install tools that tests use, if possible: Go, whose pprof reads the pprof export, strace, and two allocators."""
    missing = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    missing += [package for library, package in LIBRARIES.items() if not ctypes.util.find_library(library)]
    if not missing or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"installing {' and '.join(missing)}", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        subprocess.run(["apt-get", *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def plan(wheel: Path, pytest: list[str], only: str | None) -> tuple[list[Run], list[str]]:
    """Return the runs to make, and a message for each version that cannot be tested."""
    runs, missing = [], []
    found = {f"{major}.{minor}": path for (major, minor), path in supported().items()}
    once = ONCE_VERSION if ONCE_VERSION in found else next(iter(found), FORKY_VERSIONS[0])

    def tests(version: str) -> list[str]:
        return pytest if only or version == once else ["-m", "not once", *pytest]

    for version, path in found.items():
        if only in (None, version):
            runs.append(Run(version, one([path], REPOSITORY, BUILD / f"venv-{version}", wheel, tests(version))))
    wanted = [version for version in FORKY_VERSIONS if version not in found and only in (None, version)]
    if wanted:
        # Creates the root if needed, and checks that it can be entered: a container may forbid mounts.
        usable = subprocess.run([str(SCRIPTS / "in-forky"), "true"]).returncode == 0
        for version in wanted:
            if usable:
                python = [str(SCRIPTS / "in-forky"), f"python{version}"]
                venv = Path(f"/opt/heaptide/venv-{version}")
                runs.append(Run(version, one(python, Path("/heaptide"), venv, wheel, tests(version))))
            else:
                missing.append(f"Python {version} was NOT tested: the forky root is not usable (see above)")
    return runs, missing


def one(python: list[str], repository: Path, venv: Path, wheel: Path, pytest: list[str]) -> list[str]:
    """Return the command that tests one interpreter, with paths as they are in its root."""
    script = str(repository / "scripts" / "test_one_python.py")
    return [*python, "-B", script, "--venv", str(venv), "--wheel", str(repository / wheel), "--", *pytest]


def execute(run: Run) -> Run:
    """Run one interpreter's tests; at the limit, kill the whole process group."""
    start = time.monotonic()
    with run.log.open("w") as log:
        child = subprocess.Popen(run.command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            run.exit_code = child.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            log.write(f"\nstopped after {LIMIT_SECONDS // 60} minutes\n")
            run.exit_code = 1
    run.seconds = time.monotonic() - start
    return run


def banner(message: str) -> None:
    """Print a large warning."""
    rule = "!" * (len(message) + 6)
    print(f"\n{rule}\n!! {message} !!\n{rule}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
