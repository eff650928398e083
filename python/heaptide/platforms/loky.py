"""loky, also the copy inside joblib: the role of its processes."""

from __future__ import annotations

from heaptide.platforms import Platform


def _labels(words: list[str], is_child: bool) -> dict[str, str]:
    return {"role": "loky worker"}


PLATFORM = Platform(labels=_labels)
