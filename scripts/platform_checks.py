"""Writes docs/reference/platform-checks.md, the list of proven behaviours, from the results of the last test run.

With --check it changes nothing, and fails if the page differs. A behaviour is proven if at least one test is marked
with it, and all tests marked with it passed. `behaviours.toml` of each platform has the sentences and the limits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tomllib

REPOSITORY = Path(__file__).resolve().parent.parent
TESTS = REPOSITORY / "tests" / "platforms"
RESULTS = REPOSITORY / "build" / "platforms" / "results"
PAGE = REPOSITORY / "docs" / "reference" / "platform-checks.md"

HEAD = """# Platform checks

What the tests prove with the unmodified platforms. `scripts/platform_checks.py` writes this page from the results of
`make test-platforms`; the tests are in `tests/platforms/`.
"""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for path in sorted(TESTS.glob("*/behaviours.toml")):
        parts.append(section(path.parent.name, tomllib.loads(path.read_text())))
    return "\n".join(parts)


def section(platform: str, content: dict[str, object]) -> str:
    """Return the part of one platform: its behaviours with their tests, then its limits."""
    stored = RESULTS / f"{platform}.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    lines = [f"## {content['title']}", "", str(content["tested"]), "", "| behaviour | test | result |", "|---|---|---|"]
    behaviours = content["behaviours"]
    assert isinstance(behaviours, dict)
    for key, sentence in behaviours.items():
        tests = {test: result["outcome"] for test, result in sorted(results.items()) if key in result["behaviours"]}
        verdict = "failed" if set(tests.values()) - {"passed"} else "passed" if tests else "not tested"
        names = "<br>".join(f"`{test.partition('/')[2].replace('::', ' ')}`" for test in tests)
        lines.append(f"| {sentence} | {names} | {verdict} |")
    limits = content.get("limits", {})
    assert isinstance(limits, dict)
    if limits:
        lines += ["", "Limits, and behaviours that were not tested:", ""]
        lines += [f"- {sentence}: {reason}" for sentence, reason in limits.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or check it."""
    if sys.argv[1:] == ["--check"]:
        if PAGE.exists() and PAGE.read_text() == page():
            return 0
        print(
            "docs/reference/platform-checks.md differs from the results of the tests; run scripts/platform_checks.py",
            file=sys.stderr,
        )
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
