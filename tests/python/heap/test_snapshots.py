"""Tests snapshot files: forked copies, values and redaction, and existing files."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.json_program import run_json


def test_forked_copy_holds_the_same_objects_and_leaves_no_child(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        """
        import json, os
        import heaptide
        from heaptide._native import HeapView

        marks = [object() for _ in range(100)]
        taken = heaptide.heap_snapshot("copy.heap", fork=True)
        view = HeapView.open("copy.heap")
        try:
            os.waitpid(-1, 0)
            children = "left"
        except ChildProcessError:
            children = "none"
        print(json.dumps([len(view.at([id(mark) for mark in marks])), view.pid == os.getpid(), children,
                          taken.objects == len(view), taken.paused_seconds == taken.stood_still > 0]))
        """,
    )
    assert found == [100, True, "none", True, True]


@pytest.mark.once
def test_values_are_stored_only_on_request_and_redacted_ones_never(tmp_path: Path) -> None:
    run_json(
        tmp_path,
        """
        import json
        import heaptide

        colour = "".join(["ultra", "marine"])
        config = {"api_token": "".join(["s3cr", "et-word"]), "colour": colour}
        heaptide.heap_snapshot("without.heap")
        heaptide.heap_snapshot("with.heap", values=True, redact=["*token*"])
        print("null")
        """,
    )
    assert count_values(tmp_path / "without.heap", b"ultramarine") == 0
    assert count_values(tmp_path / "with.heap", b"ultramarine") == 1
    assert count_values(tmp_path / "with.heap", b"s3cret-word") == 0


def count_values(snapshot: Path, text: bytes) -> int:
    """Count the values of a snapshot that contain a text, through the reader because the file is compressed."""
    from heaptide import _native

    return sum(text.decode() in value for value in _native.heap_values(snapshot))


@pytest.mark.once
def test_snapshot_overwrites_a_file_only_on_request(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        """
        import json, heaptide
        heaptide.heap_snapshot("a.heap")
        try:
            heaptide.heap_snapshot("a.heap")
        except FileExistsError as error:
            message = str(error)
        heaptide.heap_snapshot("a.heap", overwrite=True)
        print(json.dumps(message))
        """,
    )
    assert "a.heap exists already" in found and "overwrite=True" in found
