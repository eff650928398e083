"""Reads the pages that Flyte writes: the titles of their decks, and the reports in their frames."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from support.controlled_program import page_data


class Page(HTMLParser):
    """A page of Flyte: a list of titles, and an element with the content of each."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.text = Path(path).read_text()
        self.titles: list[str] = []
        self.frames: list[dict[str, str]] = []
        self.ids: list[str] = []
        self.styles = 0
        self._is_title = False
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note titles, frames, ids and style sheets outside the frames."""
        attributes = {name: value or "" for name, value in attrs}
        self._is_title = tag == "li" and "handleLinkClick" in attributes.get("onclick", "")
        if tag == "iframe":
            self.frames.append(attributes)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        self.styles += tag == "style"

    def handle_data(self, data: str) -> None:
        """Note the text of a title."""
        if self._is_title:
            self.titles.append(data)
            self._is_title = False

    def report(self, number: int = 0) -> dict[str, Any]:
        """Return the data of a report."""
        data: dict[str, Any] = json.loads(page_data(self.frames[number]["srcdoc"]))
        return data

    def findings(self, number: int = 0) -> str:
        """Return the sentences of a report's findings."""
        return "\n".join(f"{each['what']}: {each['evidence']}" for each in self.report(number)["head"]["findings"])
