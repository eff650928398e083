"""Builds the docs site into build/docs from the Markdown of the repository; `make docs` runs it.

The site contains the README and every file that is reachable from it by links. It has the same folders as the
repository, so relative links work in both. The build fails if a page is not linked from anywhere, if a link is broken,
and if a page loads something from another host.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIGURATION = REPOSITORY / "docs" / "site" / "zensical.toml"
SHIM = REPOSITORY / "docs" / "site" / "iframe-worker.js"
SHIM_ADDRESS = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")
# Attributes by which a page loads something; a link that a reader may click loads nothing.
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


def main() -> int:
    """Copy the pages, build the site and check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for the copied pages, replaced")
    parser.add_argument("--out", type=Path, required=True, help="folder of the site, replaced")
    options = parser.parse_args()
    for folder in (options.work, options.out):
        shutil.rmtree(folder, ignore_errors=True)
    pages = reachable()
    problems = [f"{page}: no link leads to this page" for page in orphans(pages)]
    for page in pages:
        target = options.work / "pages" / page
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / page, target)
    shutil.copy(CONFIGURATION, options.work)
    tool = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", CONFIGURATION.name]
    if subprocess.run(tool, cwd=options.work).returncode != 0:
        return 1
    shutil.move(options.work / "site", options.out)
    shutil.copy(SHIM, options.out / "assets")
    # The links of this page are absolute, so they do not work without a server, and no link leads to it.
    (options.out / "404.html").unlink()
    built = sorted(options.out.rglob("*.html"))
    missing = len([page for page in pages if page.suffix == ".md"]) - len(built)
    if missing > 0:
        problems.append(f"{missing} pages were not built")
    for page in built:
        local = os.path.relpath(options.out / "assets" / SHIM.name, page.parent)
        page.write_text(page.read_text().replace(SHIM_ADDRESS, local))
        problems += page_problems(page)
    for sheet in options.out.rglob("*.css"):
        if re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text()):
            problems.append(f"{sheet}: loads something from another host")
    print("\n".join(problems), file=sys.stderr)
    print(f"{len(built)} pages; open {options.out / 'index.html'}")
    return 1 if problems else 0


def reachable() -> list[Path]:
    """Return the README and all files that links lead to, relative to the repository."""
    found = [Path("README.md")]
    for page in found:
        if page.suffix != ".md":
            continue
        text = re.sub(r"```.*?```|`[^`\n]*`", "", (REPOSITORY / page).read_text(), flags=re.S)
        for name in LINK.findall(text):
            target = (REPOSITORY / page).parent.joinpath(unquote(name)).resolve().relative_to(REPOSITORY)
            if target not in found and (REPOSITORY / target).is_file():
                found.append(target)
    return found


def orphans(pages: list[Path]) -> list[Path]:
    """Return the documentation pages that are not among `pages`."""
    every = {path.relative_to(REPOSITORY) for path in (REPOSITORY / "docs").rglob("*.md")}
    return sorted(every - set(pages))


class Links(HTMLParser):
    """Collects the links of a page, and the addresses that it loads."""

    def __init__(self) -> None:
        """Start without links."""
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect from one element."""
        attributes = {name: value for name, value in attrs if value}
        if tag == "a" and "href" in attributes:
            self.links.add(attributes["href"])
        if LOADING.get(tag) in attributes and attributes.get("rel") != "canonical":
            self.loaded.add(attributes[LOADING[tag]])


def page_problems(page: Path) -> list[str]:
    """Return the problems of the links of a built page."""
    reader = Links()
    reader.feed(page.read_text())
    problems = [f"{page}: loads {address}" for address in sorted(reader.loaded) if urlsplit(address).netloc]
    for address in sorted(reader.links | reader.loaded):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or not parts.path:
            continue
        if not (page.parent / unquote(parts.path)).is_file():
            problems.append(f"{page}: {address} leads nowhere")
    return problems


if __name__ == "__main__":
    sys.exit(main())
