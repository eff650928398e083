"""Dask: the roles of its processes. A nanny restarts its worker after the worker has ended."""

from __future__ import annotations

from heaptide.platforms import Platform


def _labels(words: list[str], is_child: bool) -> dict[str, str]:
    line = " ".join(words[:3]).replace("_", " ").replace("-", " ")
    if "scheduler" in line:
        return {"role": "dask scheduler"}
    if "worker" not in line:
        return {}
    return {"role": "dask worker" if is_child or "--no-nanny" in words else "dask nanny"}


PLATFORM = Platform(labels=_labels)
