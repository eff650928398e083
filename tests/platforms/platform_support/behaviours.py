"""The behaviours that a platform's tests prove, and the results of the tests.

`tests/platforms/NAME/behaviours.toml` lists the behaviours, each with a key and a sentence. `[limits]` lists those that
cannot hold, with the reason. A test names the keys that it proves: `@pytest.mark.behaviour("both_orders", "workflow")`.
After a run, `build/platforms/results/NAME.json` has the result of each test. `scripts/platform_checks.py` writes the
page from both files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomllib

TESTS = Path(__file__).resolve().parent.parent
RESULTS = TESTS.parent.parent / "build" / "platforms" / "results"


def listed(platform: str) -> dict[str, Any]:
    """Return the content of a platform's list of behaviours."""
    return tomllib.loads((TESTS / platform / "behaviours.toml").read_text())


class Results:
    """Collects the results of the tests, by platform: a pytest plugin."""

    def __init__(self, release: str) -> None:
        # Results of another release go to a separate file.
        self._ending = f"-{release}.json" if release else ".json"
        self._behaviours: dict[str, list[str]] = {}
        self._outcomes: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Store the behaviours that each test proves; an unlisted behaviour is an error."""
        for item in items:
            names = [name for mark in item.iter_markers("behaviour") for name in mark.args]
            known = listed(_platform(item.nodeid))["behaviours"]
            unknown = [name for name in names if name not in known]
            if unknown:
                raise pytest.UsageError(f"{item.nodeid}: behaviours.toml has no {', '.join(unknown)}")
            self._behaviours.setdefault(_test(item.nodeid), []).extend(names)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the result of a test; a test with parameters passes if all its cases pass."""
        test = _test(report.nodeid)
        if report.failed or (report.skipped and self._outcomes.get(test) != "failed"):
            self._outcomes[test] = report.outcome
        elif report.when == "call":
            self._outcomes.setdefault(test, "passed")

    def pytest_sessionfinish(self) -> None:
        """Write the results, keeping those of tests that did not run."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        for platform in {_platform(test) for test in self._outcomes}:
            path = RESULTS / (platform + self._ending)
            results = json.loads(path.read_text()) if path.exists() else {}
            for test, outcome in self._outcomes.items():
                if _platform(test) == platform:
                    behaviours = sorted(set(self._behaviours.get(test, ())))
                    results[test] = {"outcome": outcome, "behaviours": behaviours}
            path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def _test(nodeid: str) -> str:
    """Return the name of a test without its parameters: `flyte/test_decks.py::test_…`."""
    return nodeid.partition("[")[0].removeprefix("tests/platforms/")


def _platform(nodeid: str) -> str:
    return _test(nodeid).partition("/")[0]
