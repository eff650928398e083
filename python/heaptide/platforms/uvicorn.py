"""uvicorn: the roles of its processes."""

from __future__ import annotations

from heaptide.platforms import Platform


def _labels(words: list[str], is_child: bool) -> dict[str, str]:
    has_children = any(word.startswith(("--workers", "--reload")) for word in words)
    return {"role": "uvicorn worker" if is_child or not has_children else "uvicorn supervisor"}


PLATFORM = Platform(labels=_labels)
