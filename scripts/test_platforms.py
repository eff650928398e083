"""Runs the tests of real platforms against the built wheel, each platform in its own process, two at a time.

pytest runs in `build/platforms/pytest`, an environment of the interpreter that runs this file; the tests install each
platform in an environment next to it. Logs are in build/logs. After a complete run, the script compares the results
with `docs/reference/platform-checks.md` and fails if they differ.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
from pathlib import Path

from make_venv import make_venv
from test_all_pythons import BUILD, REPOSITORY, Run, execute
from test_one_python import digest, install_once, install_wheel, pip

TESTS = REPOSITORY / "tests" / "platforms"


class PlatformRun(Run):
    """The tests of one platform; `version` is its name."""

    @property
    def log(self) -> Path:
        """The path of the log."""
        return BUILD / "logs" / f"platform-{self.version}.log"

    def verdict(self) -> str:
        """Return the summary line."""
        return super().verdict().replace("Python ", "", 1)


def main() -> int:
    """Run the tests and return 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True, help="the wheel under test")
    parser.add_argument("--only", metavar="NAME", help="test this platform alone")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    options = parser.parse_args()

    requirements = TESTS / "requirements.txt"
    venv = BUILD / "platforms" / "pytest"
    python = make_venv(venv)
    install_once(venv, "requirements", digest(requirements), lambda: require(pip(python, "-r", str(requirements))))
    # Tests read captures with the same Heaptide.
    install_once(venv, "wheel", digest(options.wheel), lambda: install_wheel(python, options.wheel))
    os.environ["HEAPTIDE_TEST_WHEEL"] = str(options.wheel.resolve())
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ.pop("PYTHONPATH", None)
    os.chdir(REPOSITORY)
    (BUILD / "logs").mkdir(parents=True, exist_ok=True)
    is_complete = not options.only and not options.pytest
    if is_complete:
        shutil.rmtree(BUILD / "platforms" / "results", ignore_errors=True)

    names = sorted(folder.name for folder in TESTS.iterdir() if (folder / "behaviours.toml").exists())
    runs = [
        PlatformRun(name, [str(python), "-m", "pytest", str(TESTS / name), "--durations=5", *options.pytest])
        for name in names
        if options.only in (None, name)
    ]
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for run in pool.map(execute, runs):
            if run.exit_code or len(runs) == 1:
                print(f"\n--- {run.log.relative_to(REPOSITORY)} ---\n{run.log.read_text(errors='replace')}", flush=True)
    print("\nTests of platforms (logs in build/logs):")
    for run in runs:
        print("  " + run.verdict(), flush=True)
    failed = not runs or any(run.exit_code for run in runs)
    if is_complete and not failed:
        script = [sys.executable, "-B", str(REPOSITORY / "scripts" / "platform_checks.py"), "--check"]
        failed = subprocess.run(script).returncode != 0
    return 1 if failed else 0


def require(is_installed: bool) -> None:
    """Exit with a message if pytest could not be installed."""
    if not is_installed:
        sys.exit("pytest could not be installed; pip's messages are above")


if __name__ == "__main__":
    sys.exit(main())
