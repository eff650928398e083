"""Attach and detach many times in a row on every Python of this machine, and 3.14 and 3.15 in the forky root.

    python bench/attach_everywhere.py --wheel build/wheels/heaptide-*.whl --rounds 200

Each Python gets an environment of its own with the wheel, and runs `attach.py` there. A program that does not compute,
read and print what it would have without us ends this with 1, and so does a missed budget if `--strict` is given.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from attach import Figures, verdict

REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPTS = REPOSITORY / "scripts"
FORKY_VERSIONS = ("3.14", "3.15")


def measure(python: list[str], repository: Path, venv: Path, wheel: Path, rounds: int) -> list[Figures]:
    """Prepare an environment and run the rounds there; `python` may begin with what enters another root."""
    *enter, _ = python
    inside = [*enter, str(venv / "bin" / "python"), "-B"]
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall", "--no-deps"]
    for command in (
        [*python, "-B", str(repository / "scripts" / "make_venv.py"), str(venv)],
        [*inside, *install, str(repository / wheel)],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rest = [str(repository / "bench" / "attach.py"), "--json", "--rounds", str(rounds)]
    done = subprocess.run([*inside, *rest], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"attach.py ended with {done.returncode} on {' '.join(python)}: its message is above")
    return [Figures(*row) for row in json.loads(done.stdout)]


def pythons(only: list[str]) -> list[tuple[str, list[str]]]:
    """Every interpreter by its version, as the words that start it."""
    listed = subprocess.run(
        [sys.executable, "-B", str(SCRIPTS / "pythons.py")], check=True, stdout=subprocess.PIPE, text=True
    )
    rows = (line.split("\t") for line in listed.stdout.splitlines())
    found = {version: [path] for version, path in rows if not only or version in only}
    wanted = [version for version in FORKY_VERSIONS if version not in found and (not only or version in only)]
    if wanted and subprocess.run([str(SCRIPTS / "in-forky"), "true"]).returncode == 0:
        found.update({version: [str(SCRIPTS / "in-forky"), f"python{version}"] for version in wanted})
    elif wanted:
        print(f"Python {' and '.join(wanted)} NOT measured: the forky root cannot be entered (see above)")
    return list(found.items())


def main() -> int:
    """Measure everywhere, print, write, and say whether the budget holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, required=True, help="the wheel to measure, inside this repository")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", action="append", default=[], metavar="3.N", help="this version; may be repeated")
    parser.add_argument("--strict", action="store_true", help="end with 1 if the budget is missed")
    parser.add_argument("--results", type=Path, help="folder for attach.md, in which the table is kept")
    asked = parser.parse_args()
    wheel = asked.wheel.resolve().relative_to(REPOSITORY)
    found: list[Figures] = []
    print(Figures.HEADER, flush=True)
    for version, python in pythons(asked.only):
        is_forky = len(python) > 1
        repository = Path("/heaptide") if is_forky else REPOSITORY
        venv = (Path("/opt/heaptide") if is_forky else REPOSITORY / "build") / f"attach-{version}"
        for figures in measure(python, repository, venv, wheel, asked.rounds):
            found.append(figures)
            print(figures.line(), flush=True)
    is_kept = all(figures.is_within_budget() for figures in found)
    print(verdict(is_kept))
    if asked.results:
        lines = [Figures.HEADER, *(figures.line() for figures in found), verdict(is_kept)]
        text = "\n".join(
            ["# Attaching to running programs", "", time.strftime("%Y-%m-%d"), "", "```text", *lines, "```"]
        )
        (asked.results / "attach.md").write_text(text + "\n")
    return 1 if asked.strict and not is_kept else 0


if __name__ == "__main__":
    sys.exit(main())
