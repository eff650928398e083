"""Attaches and detaches many times on every supported Python of this machine.

Versions that the machine lacks run in a Debian 14 (forky) root file system, if `scripts/in-forky` can enter it.

    python bench/attach_everywhere.py --wheel build/wheels/heaptide-*.whl --rounds 200

Each Python runs `attach.py` in its own environment with the wheel. Exits with 1 if the results, input or output of a
program differ from a run without Heaptide; with `--strict` also if a budget is missed.
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
sys.path.insert(0, str(SCRIPTS))

from pythons import forky_versions, supported  # noqa: E402


def measure(python: list[str], repository: Path, venv: Path, wheel: Path, rounds: int) -> list[Figures]:
    """Prepare an environment and run the rounds in it; `python` may start with a command that enters another root."""
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
        raise SystemExit(f"attach.py exited with {done.returncode} on {' '.join(python)}; its message is above")
    return [Figures(*row) for row in json.loads(done.stdout)]


def interpreters(only: list[str]) -> list[tuple[str, list[str]]]:
    """Return the versions, each with the command that starts it."""
    found = {f"{major}.{minor}": [path] for (major, minor), path in supported().items()}
    found = {version: command for version, command in found.items() if not only or version in only}
    wanted = [version for version in forky_versions() if version not in found and (not only or version in only)]
    if wanted and subprocess.run([str(SCRIPTS / "in-forky"), "true"]).returncode == 0:
        found.update({version: [str(SCRIPTS / "in-forky"), f"python{version}"] for version in wanted})
    elif wanted:
        print(f"Python {' and '.join(wanted)} NOT measured: the forky root cannot be entered (see above)")
    return list(found.items())


def main() -> int:
    """Measure on every Python, print, write the table, and compare with the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, required=True, help="wheel to measure, inside this repository")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", action="append", default=[], metavar="3.N", help="this version; may be repeated")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if the budget is missed")
    parser.add_argument("--results", type=Path, help="folder for attach.md with the table")
    options = parser.parse_args()
    wheel = options.wheel.resolve().relative_to(REPOSITORY)
    found: list[Figures] = []
    print(Figures.HEADER, flush=True)
    for version, python in interpreters(options.only):
        is_forky = len(python) > 1
        repository = Path("/heaptide") if is_forky else REPOSITORY
        venv = (Path("/opt/heaptide") if is_forky else REPOSITORY / "build") / f"attach-{version}"
        for figures in measure(python, repository, venv, wheel, options.rounds):
            found.append(figures)
            print(figures.line(), flush=True)
    is_kept = all(figures.is_within_budget() for figures in found)
    print(verdict(is_kept))
    if options.results:
        lines = [Figures.HEADER, *(figures.line() for figures in found), verdict(is_kept)]
        text = "\n".join(
            ["# Attaching to running programs", "", time.strftime("%Y-%m-%d"), "", "```text", *lines, "```"]
        )
        (options.results / "attach.md").write_text(text + "\n")
    return 1 if options.strict and not is_kept else 0


if __name__ == "__main__":
    sys.exit(main())
