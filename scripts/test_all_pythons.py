"""Runs the Python tests on every supported interpreter: those of this machine, and 3.14 and 3.15 in the forky root.

Two interpreters at a time. Each has its own log in build/logs; the output shows a failed log whole, and ends with one
line for each version. A version that cannot be tested here is said loudly and does not fail the run.
"""

from __future__ import annotations

import argparse
import concurrent.futures
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
# The one that also runs the tests marked `once`, which do not depend on the version; without it the oldest found does.
ONCE_VERSION = "3.12"
# A run that takes longer hangs: its tests take minutes.
LIMIT_SECONDS = 45 * 60


@dataclass
class Run:
    """One interpreter's tests: what to start, and afterwards how it went."""

    version: str
    command: list[str]
    exit_code: int = 0
    seconds: float = 0.0

    @property
    def log(self) -> Path:
        """Where the output goes."""
        return BUILD / "logs" / f"pytest-{self.version}.log"

    def verdict(self) -> str:
        """The summary line: pytest's own last line, or what stopped it."""
        last = self.log.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
        state = "ok    " if self.exit_code == 0 else "FAILED"
        return f"Python {self.version:5} {state} {self.seconds:4.0f} s  {last[0].strip('= ')}"


def main() -> int:
    """Run all, print all, fail if any failed."""
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
    install_readers()
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


def install_readers() -> None:
    """Other people's programs that read our exports, where they can be had; without them their tests are skipped."""
    if shutil.which("go") or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print("installing golang-go, whose pprof reads our export", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "golang-go"]):
        subprocess.run(["apt-get", *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def plan(wheel: Path, pytest: list[str], only: str | None) -> tuple[list[Run], list[str]]:
    """The runs to make, and a sentence for each that cannot be made."""
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
        # Makes the root if need be, and proves that it can be entered: a container may forbid mounts.
        usable = subprocess.run([str(SCRIPTS / "in-forky"), "true"]).returncode == 0
        for version in wanted:
            if usable:
                python = [str(SCRIPTS / "in-forky"), f"python{version}"]
                venv = Path(f"/opt/heaptide/venv-{version}")
                runs.append(Run(version, one(python, Path("/heaptide"), venv, wheel, tests(version))))
            else:
                missing.append(f"Python {version} was NOT tested: the forky root cannot be made or entered (see above)")
    return runs, missing


def one(python: list[str], repository: Path, venv: Path, wheel: Path, pytest: list[str]) -> list[str]:
    """The command that tests one interpreter, with the paths as that interpreter sees them."""
    script = str(repository / "scripts" / "test_one_python.py")
    return [*python, "-B", script, "--venv", str(venv), "--wheel", str(repository / wheel), "--", *pytest]


def execute(run: Run) -> Run:
    """Run to the end, or to the limit: then everything it started is ended too."""
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
    """Say it so that nobody overlooks it."""
    rule = "!" * (len(message) + 6)
    print(f"\n{rule}\n!! {message} !!\n{rule}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
