"""Tests the checks of `make docs` without the tool that builds the site."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_site import orphans, page_problems, reachable

pytestmark = pytest.mark.once


def test_links_from_the_readme_lead_to_every_documentation_page() -> None:
    pages = reachable()
    assert orphans(pages) == []
    assert Path("docs/tutorial.md") in pages
    assert Path("bench/results/latest.md") in pages


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="other.html#part">x</a><img src="picture.png"><a href="https://example.org/">y</a>', None),
        ('<a href="missing.html">x</a>', "missing.html leads nowhere"),
        ('<img src="missing.png">', "missing.png leads nowhere"),
        ('<script src="https://example.org/script.js"></script>', "loads https://example.org/script.js"),
        ('<link rel="stylesheet" href="//example.org/style.css">', "loads //example.org/style.css"),
    ],
)
def test_a_page_may_link_to_other_hosts_but_load_nothing_from_them(
    html: str, problem: str | None, tmp_path: Path
) -> None:
    for name in ("other.html", "picture.png"):
        (tmp_path / name).touch()
    page = tmp_path / "page.html"
    page.write_text(html)
    assert page_problems(page) == ([] if problem is None else [f"{page}: {problem}"])
