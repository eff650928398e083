"""Runs CPython's own tests bare and under Heaptide, and compares the result of every test method.

Recording must not change a program, so each test must have the same result. Every module runs in its own process with a
time limit, in an environment that contains only the wheel. Results are stored in build/cpython, so an interrupted run
continues where it stopped. If the results of a module differ, it runs once more bare and recorded. A test is different
if the results of its bare runs and of its recorded runs have nothing in common.

The table in docs/internals/cpython-suite.md lists the differences that have a reason. Any other difference makes this
script fail.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fnmatch
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pythons import supported

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "build" / "cpython"
PAGE = REPOSITORY / "docs" / "internals" / "cpython-suite.md"
VERSIONS = ("3.11", "3.12", "3.13")
BARE = "bare"
# Options of `heaptide run`.
RUN_OPTIONS = {"run": [], "objects": ["--objects"], "native": ["--native"]}
# Variables beside `HEAPTIDE=run`, which also records every interpreter that a test starts.
VARIABLES = {"env": {}, "combined": {"HEAPTIDE_OBJECTS": "1", "HEAPTIDE_NATIVE": "1"}}
MODES = ("run", "env", "objects", "native", "combined")
USUAL_MODES = MODES[:4]
LIMIT_SECONDS = 900
# In a virtual machine that has the device but no listener, these tests never end, even bare.
IGNORED = "*VSOCK*"
# Variables with these prefixes could change the results.
UNWANTED = ("HEAPTIDE", "PYTHON", "MEMRAY")


@dataclass
class Outcome:
    """The results of one module in one mode. Several runs may have given a test several results."""

    ending: str
    seconds: float
    wheel: str
    n_runs: int = 1
    tests: dict[str, list[str]] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Add the results of another run. A test that did not run has the result `missing`."""
        for name in {*self.tests, *other.tests}:
            own_results = self.tests.get(name, ["missing"])
            self.tests[name] = sorted({*own_results, *other.tests.get(name, ["missing"])})
        if other.ending != self.ending:
            self.ending = "unstable"
        self.n_runs += other.n_runs


@dataclass(frozen=True)
class Known:
    """A row of the page: patterns for tests, versions and modes, and the reason."""

    test: str
    versions: str
    modes: str
    reason: str

    def covers(self, version: str, mode: str, test: str) -> bool:
        """Return whether the row explains a difference."""
        return (
            fnmatch.fnmatchcase(test, self.test)
            and (self.versions == "all" or version in self.versions.split(", "))
            and (self.modes == "all" or mode in self.modes.split(", "))
        )


def known_differences() -> list[Known]:
    """Read the table of the page."""
    rows = []
    inside = False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        inside = line.startswith("|") and (inside or cells[0] == "test")
        if inside and len(cells) == 4 and cells[0] != "test" and not cells[0].startswith("-"):
            rows.append(Known(*cells))
    return rows


class Suite:
    """The tests of one interpreter."""

    def __init__(self, version: str, base: str, wheel: Path, options: argparse.Namespace) -> None:
        self.version = version
        self.options = options
        self.wheel = hashlib.sha256(wheel.read_bytes()).hexdigest()
        self.folder = RESULTS / version
        venv = self.folder / "venv"
        subprocess.run([base, str(REPOSITORY / "scripts" / "make_venv.py"), str(venv)], check=True, capture_output=True)
        self.python = venv / "bin" / "python"
        installed = venv / ".wheel"
        if not installed.exists() or installed.read_text() != self.wheel:
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([str(self.python), *install, "--force-reinstall", str(wheel)], check=True)
            installed.write_text(self.wheel)

    def modules(self, patterns: list[str]) -> list[str]:
        """Return the modules that match one of the patterns, or all. The package `test` may be missing."""
        done = subprocess.run([str(self.python), "-m", "test", "--list-tests"], capture_output=True, text=True)
        names = [line.strip() for line in done.stdout.splitlines() if line.startswith("test")]
        if not patterns:
            return names
        found = [
            name
            for pattern in patterns
            for name in names
            if fnmatch.fnmatchcase(name.removeprefix("test."), pattern.removeprefix("test."))
        ]
        return list(dict.fromkeys(found))

    def outcome(self, mode: str, module: str) -> Outcome:
        """Return the stored results of a module, or run it."""
        path = self.folder / mode / f"{module}.json"
        if path.exists() and not self.options.fresh:
            kept = Outcome(**json.loads(path.read_text()))
            if mode == BARE or kept.wheel == self.wheel or self.options.any_wheel:
                return kept
        outcome = self.run(mode, module)
        self.keep(mode, module, outcome)
        return outcome

    def keep(self, mode: str, module: str, outcome: Outcome) -> None:
        """Store results atomically."""
        path = self.folder / mode / f"{module}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(asdict(outcome), indent=1))
        unfinished.replace(path)

    def run(self, mode: str, module: str) -> Outcome:
        """Run a module once."""
        folder = Path(tempfile.mkdtemp(prefix="heaptide-cpython-"))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(UNWANTED)}
        environment["TMPDIR"] = str(folder)
        prefix: list[str] = []
        if mode != BARE:
            captures = folder / "captures"
            captures.mkdir()
            if mode in VARIABLES:
                pattern = captures / "{component}.{pid}.tide"
                environment.update(HEAPTIDE="run", HEAPTIDE_QUIET="1", HEAPTIDE_OUT=str(pattern), **VARIABLES[mode])
            else:
                prefix = ["-m", "heaptide", "run", "-q", "-o", str(captures / "test.tide"), *RUN_OPTIONS[mode]]
        report = folder / "report.xml"
        words = ["--junit-xml", str(report), "--tempdir", str(folder), "--ignore", IGNORED, module]
        command = [str(self.python), *prefix, "-m", "test", *words]
        started = time.monotonic()
        try:
            with self.log(mode, module).open("wb") as log:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                try:
                    ending = str(process.wait(self.options.limit))
                except subprocess.TimeoutExpired:
                    ending = "timeout"
                finally:
                    # Also kill processes that the tests left running.
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            return Outcome(ending, round(time.monotonic() - started, 1), self.wheel, tests=results(report))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def log(self, mode: str, module: str) -> Path:
        """Return the path of a run's output."""
        path = self.folder / mode / f"{module}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def compare(self, mode: str, module: str) -> tuple[int, list[tuple[str, str, str]]] | None:
        """Return the number of tests of a module, and the different ones with their results, bare and recorded.

        Returns None if the module takes too long bare.
        """
        bare = self.outcome(BARE, module)
        if bare.ending == "timeout":
            return None
        recorded = self.outcome(mode, module)
        found = list(differences(module, bare, recorded))
        if found and recorded.n_runs == 1:
            for name, outcome in ((BARE, bare), (mode, recorded)):
                outcome.add(self.run(name, module))
                self.keep(name, module, outcome)
            found = list(differences(module, bare, recorded))
        return len(bare.tests), found


def results(report: Path) -> dict[str, list[str]]:
    """Read the results of all tests from a JUnit report. Tests that share a name share a result."""
    found: dict[str, list[str]] = {}
    try:
        cases = ElementTree.parse(report).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError):
        return found
    for case in cases:
        tags = {child.tag for child in case} & {"failure", "error", "skipped"}
        result = next(iter(sorted(tags)), "ok")
        name = case.get("name", "")
        if not name:
            # A test whose subtests failed also appears without a name.
            continue
        found[name] = ["+".join(sorted([*found.get(name, []), result]))] if name in found else [result]
    return found


def differences(module: str, bare: Outcome, recorded: Outcome) -> Iterator[tuple[str, str, str]]:
    """Yield the tests whose results have nothing in common; if there is none, the module if its endings differ."""
    n_different = 0
    for name in sorted({*bare.tests, *recorded.tests}):
        bare_results, recorded_results = (outcome.tests.get(name, ["missing"]) for outcome in (bare, recorded))
        if not {*bare_results} & {*recorded_results}:
            n_different += 1
            yield name, " or ".join(bare_results), " or ".join(recorded_results)
    if n_different == 0 and bare.ending != recorded.ending and "unstable" not in (bare.ending, recorded.ending):
        yield module, f"ended with {bare.ending}", f"ended with {recorded.ending}"


def main() -> int:
    """Run and compare; return 1 if a difference has no reason on the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, required=True, help="the wheel under test")
    parser.add_argument("--only", metavar="3.N", help=f"run this version alone, instead of {', '.join(VERSIONS)}")
    parser.add_argument(
        "--modes", default=",".join(USUAL_MODES), help="modes to compare with the bare run, separated by commas"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="modules to run at a time")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds that a module may take")
    parser.add_argument("--fresh", action="store_true", help="run modules again that have results")
    parser.add_argument("--any-wheel", action="store_true", help="also use results of earlier wheels")
    parser.add_argument("--table", action="store_true", help="print the stored results and run nothing")
    parser.add_argument("modules", nargs="*", help="modules, also as patterns such as 'test_io*' [default: all]")
    options = parser.parse_args()
    modes = options.modes.split(",")
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown:
        parser.error(f"unknown mode {unknown[0]}: use some of {', '.join(MODES)}")

    # A shell that runs this in the background ignores SIGINT, and the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interpreters = {f"{major}.{minor}": path for (major, minor), path in supported().items()}
    known = known_differences()
    rows, n_unexplained = [], 0
    not_compared: dict[str, list[str]] = {}
    for version in [options.only] if options.only else VERSIONS:
        if version not in interpreters:
            print(f"NOTE: CPython {version} is not on PATH or in pyenv; its tests are not run", flush=True)
            continue
        suite = Suite(version, interpreters[version], options.wheel, options)
        modules = suite.modules(options.modules)
        if not modules:
            print(f"NOTE: CPython {version} has no such tests; its package `test` may be missing", flush=True)
        for mode in modes:
            row = Row(version, mode)
            for module, comparison in compared(suite, mode, modules):
                if comparison is None:
                    print(f"{version} {mode} {module}: takes too long bare, not compared", flush=True)
                    continue
                row.modules.add(module)
                n_tests, found = comparison
                row.add(n_tests, [(one, explained(known, version, mode, one[0])) for one in found])
                for (test, bare, recorded), reason in row.latest:
                    verdict = f"known: {reason}" if reason else "UNEXPLAINED"
                    print(f"{version} {mode} {test}: {bare} bare, {recorded} recorded ({verdict})", flush=True)
                print(f"{version} {mode} {module}: {n_tests} tests, {len(found)} differ", flush=True)
            n_unexplained += row.n_unexplained
            rows.append(row)
            lacking = [module for module in modules if module not in row.modules]
            not_compared.setdefault(named(lacking), []).append(f"{version} {mode}")
    print("\n| Python | mode | modules | tests | same | known differences | unexplained |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(row.text())
    for names, runs in not_compared.items():
        print(f"\nNot compared on {', '.join(runs)}: {names}")
    return 1 if n_unexplained else 0


def named(modules: list[str]) -> str:
    """Return the names of modules for the page, without the package they share."""
    return ", ".join(f"`{module.removeprefix('test.')}`" for module in modules) or "none"


def explained(known: list[Known], version: str, mode: str, test: str) -> str:
    """Return the reason for a difference, or an empty string."""
    return next((row.reason for row in known if row.covers(version, mode, test)), "")


def compared(
    suite: Suite, mode: str, modules: list[str]
) -> Iterator[tuple[str, tuple[int, list[tuple[str, str, str]]] | None]]:
    """Yield the comparison of every module, in order. Several modules run at a time."""
    if suite.options.table:
        has_both = [all((suite.folder / each / f"{name}.json").exists() for each in (BARE, mode)) for name in modules]
        modules = [name for name, has in zip(modules, has_both, strict=True) if has]
    with concurrent.futures.ThreadPoolExecutor(suite.options.jobs) as pool:
        waiting = [pool.submit(suite.compare, mode, module) for module in modules]
        for module, done in zip(modules, waiting, strict=True):
            yield module, done.result()


class Row:
    """A row of the final table: the sums of one version and mode."""

    def __init__(self, version: str, mode: str) -> None:
        self.version = version
        self.mode = mode
        self.n_tests = self.n_known = self.n_unexplained = 0
        self.modules: set[str] = set()
        self.latest: list[tuple[tuple[str, str, str], str]] = []

    def add(self, n_tests: int, found: list[tuple[tuple[str, str, str], str]]) -> None:
        """Add a module and its differences, each with its reason."""
        self.n_tests += n_tests
        self.n_known += sum(bool(reason) for _, reason in found)
        self.n_unexplained += sum(not reason for _, reason in found)
        self.latest = found

    def text(self) -> str:
        """Return the row in Markdown."""
        n_same = self.n_tests - self.n_known - self.n_unexplained
        numbers = (len(self.modules), self.n_tests, n_same, self.n_known, self.n_unexplained)
        return f"| {self.version} | {self.mode} | " + " | ".join(map(str, numbers)) + " |"


if __name__ == "__main__":
    sys.exit(main())
