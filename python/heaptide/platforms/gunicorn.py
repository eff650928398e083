"""gunicorn: the roles of its processes."""

from __future__ import annotations

from heaptide.platforms import Platform


def _labels(words: list[str], is_child: bool) -> dict[str, str]:
    return {"role": "gunicorn worker" if is_child else "gunicorn arbiter"}


PLATFORM = Platform(labels=_labels)
