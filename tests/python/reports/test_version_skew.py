"""Tests that files of a later format are refused with one sentence that names the version of Heaptide they need."""

from __future__ import annotations

from pathlib import Path

import heaptide
import pytest
from support.commands import heaptide as run_heaptide
from support.messages import one_sentence

pytestmark = pytest.mark.once

PROGRAM = "import heaptide; kept = [bytes(100_000)]; heaptide.heap_snapshot('job.heap')"


# Later than the format of any file.
LATER_FORMAT = 99


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a capture, a heap snapshot and a timeline that a later version seems to have written."""
    folder = tmp_path_factory.mktemp("skew")
    (folder / "job.py").write_text(PROGRAM)
    run_heaptide("run", "-q", "-o", "job.tide", "job.py", cwd=folder)
    run_heaptide("record", "-q", "-o", "job.timeline", "--", "sleep", "0.3", cwd=folder)
    for name in ("job.tide", "job.heap"):
        content = bytearray((folder / name).read_bytes())
        content[8] = LATER_FORMAT
        version = heaptide.__version__.encode()
        content[:] = content.replace(version, b"9" * len(version), 1)
        (folder / name).write_bytes(content)
    timeline = (folder / "job.timeline").read_text()
    first, second, rest = timeline.split("\n", 2)
    assert (first, second) == ("heaptide timeline 1", f"version {heaptide.__version__}")
    later = "9" * len(heaptide.__version__)
    (folder / "job.timeline").write_text(f"heaptide timeline {LATER_FORMAT}\nversion {later}\n{rest}")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("stats", "job.tide"),
        ("flamegraph", "job.tide"),
        ("parse", "job.tide"),
        ("heap", "types", "job.heap"),
        ("plot", "job.timeline"),
        ("peak", "job.timeline"),
    ],
    ids=" ".join,
)
def test_file_of_a_later_version_names_that_version(folder: Path, words: tuple[str, ...]) -> None:
    done = run_heaptide(*words, check=False, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    later = "9" * len(heaptide.__version__)
    sentence = one_sentence(done.stderr)
    assert f"{words[-1]} was written by Heaptide {later} in format {LATER_FORMAT}" in sentence
    assert sentence.rstrip().endswith(f"install Heaptide {later} or later")
