"""RQ: the roles of its processes. A worker forks a work-horse for each job."""

from __future__ import annotations

from heaptide.platforms import Platform


def _labels(words: list[str], is_child: bool) -> dict[str, str]:
    command = next((word for word in words[1:] if not word.startswith("-")), "")
    if not command.startswith("worker"):
        return {"role": f"rq {command}"} if command else {}
    if command == "worker-pool":
        return {"role": "rq worker" if is_child else "rq worker pool"}
    return {"role": "rq work-horse" if is_child else "rq worker"}


PLATFORM = Platform(labels=_labels)
