"""joblib: the role of loky's processes."""

from __future__ import annotations

from heaptide.platforms import Platform


def _labels(words: list[str], is_child: bool) -> dict[str, str]:
    return {"role": "loky worker"} if "loky" in " ".join(words[:2]) else {}


PLATFORM = Platform(labels=_labels)
