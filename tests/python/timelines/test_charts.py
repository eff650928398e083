"""Tests that each chart format shows the same run, and that files other than timelines are refused."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import pytest
from support.commands import heaptide
from support.messages import one_sentence
from support.pages import assert_runs_only_its_own_script, data_of

pytestmark = pytest.mark.once

# A steady rise of 8 MiB a second, from 100 MiB, for ten seconds.
RISE = "".join(f"MEM {100 + 0.8 * n:.6f} {1000 + n / 10:.4f}\n" for n in range(101))
FUNCTIONS = "FUNC a.load 110.0000 1001.0 140.0000 1005.0 0\nFUNC b.load 115.0 1002.0 130.0 1003.5 1\n"


@pytest.fixture
def rising(tmp_path: Path) -> Path:
    """A file with known numbers."""
    path = tmp_path / "rise.dat"
    path.write_text(f"CMDLINE python <job>.py & more\n{FUNCTIONS}{RISE}HEAPTIDE limit 260.000000 1000.0000\n")
    return path


def plot(rising: Path, name: str, *options: str) -> Path:
    """Write a chart, and return its path."""
    target = rising.parent / name
    assert heaptide("plot", *options, "-o", target, rising).stdout == f"Wrote {target}\n"
    return target


def test_svg_holds_curve_peak_limit_functions_and_forecast(rising: Path) -> None:
    tree = ElementTree.parse(plot(rising, "x.svg", "-s"))
    texts = [element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    words = "\n".join(texts)
    assert "python <job>.py & more" in texts
    assert "peak 189 MB at 10.0 s" in words
    assert "limit 273 MB" in words
    assert "slope +8.39 MB/s" in words
    # Functions of the same name are shown with their modules.
    assert "a.load 4.00 s" in words
    assert "b.load 1.50 s" in words
    assert "reaches the limit of 273 MB in 10.0 s" in words
    curves = [
        element for element in tree.iter("{http://www.w3.org/2000/svg}polyline") if "data-series" in element.attrib
    ]
    assert len(curves[0].attrib["points"].split()) == 2 * 101


@pytest.mark.parametrize(
    ("sizes", "ending", "expected"),
    [
        ([100 + n for n in range(100)], "", "at this rate the program reaches the limit of 273 MB in 6.10 s"),
        (
            [100 + n for n in range(100)],
            "over 9.9 exit 0",
            "at this rate the program would have reached the limit of 273 MB 6.10 s later",
        ),
        ([100 + n for n in range(100)], "oom 1\nover 9.9 signal 9", None),
        ([100] * 100, "", None),
        ([200 - n for n in range(100)], "", None),
        # Growth that has stopped.
        ([100 + min(n, 40) for n in range(100)], "", None),
        ([200 + n for n in range(100)], "", None),
    ],
    ids=["grows", "has-ended", "was-killed", "flat", "falls", "grew-once", "is-beyond"],
)
def test_forecast_is_the_same_in_every_format_and_only_for_growth(
    tmp_path: Path, sizes: list[int], ending: str, expected: str | None
) -> None:
    for limit in ("limit=266240", ""):
        path = tmp_path / "x.timeline"
        samples = "".join(f"at {n / 10:.4f} 0={size * 1024} {limit}\n" for n, size in enumerate(sizes))
        path.write_text(f"heaptide timeline 1\nstarted 1000.0\nnew 0.0000 0 100 1 job job\n{samples}{ending}\n")
        forecasts = []
        for name in ("x.txt", "x.svg", "x.html"):
            target = plot(path, name)
            text = "\n".join(data_of(target)["head"]["notes"]) if name == "x.html" else target.read_text()
            forecasts += re.findall(r"at this rate the program [^<\"\n]*", text)
        assert forecasts == ([expected] * 3 if expected and limit else [])


def test_png_is_whole_and_not_empty(rising: Path) -> None:
    data = plot(rising, "x.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    parts, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.pack(">I", zlib.crc32(name + body)) == data[at + 8 + length : at + 12 + length]
        parts[name], at = body, at + 12 + length
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    rows = zlib.decompress(parts[b"IDAT"])
    assert len(rows) == height * (1 + 3 * width)
    # The blue of the first curve, where it is not blended with other colours.
    assert rows.count(bytes([0x25, 0x63, 0xEB])) > 500


def test_page_allows_only_its_own_script_and_has_the_curves(rising: Path) -> None:
    page = plot(rising, "x.html", "-s")
    assert_runs_only_its_own_script(page)
    assert "<job>" not in page.read_text()
    data = data_of(page)
    assert data["head"]["title"] == "python <job>.py & more"
    assert data["head"]["peak"] == [10, 180 << 20]
    assert data["head"]["limit"] == 260 << 20
    curve = data["series"][0]
    assert (curve["seconds"][-1], curve["bytes"][-1]) == (10, 180 << 20)
    assert curve["bytes_per_s"] == pytest.approx(8 << 20)
    calls = {call["function"]: (call["begin"], call["end"], call["level"]) for call in data["calls"]}
    assert calls == {"a.load": (1, 5, 0), "b.load": (2, 3.5, 1)}


def test_terminal_chart_has_functions_windows_and_titles(rising: Path) -> None:
    whole = heaptide("plot", rising).stdout
    assert re.search(r"├a\.load 4\.00 s", whole)
    flames = heaptide("plot", "-f", rising).stdout.splitlines()
    outer, inner = (next(n for n, line in enumerate(flames) if name in line) for name in ("a.load", "b.load"))
    assert inner == outer + 1
    part = heaptide("plot", "-w", "2,4", "-t", "only a part", rising).stdout
    assert part.startswith("only a part\n")
    assert "peak 138 MB at 4.00 s" in part
    saved = plot(rising, "x.txt").read_text()
    assert saved == whole


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["plot", "empty"], 1, "empty holds no samples"),
        (["plot", "foreign.csv"], 1, "foreign.csv is not a timeline"),
        (["peak", "foreign.csv"], 1, "foreign.csv is not a timeline"),
        (["plot", "missing.dat"], 1, "missing.dat does not exist"),
        (["plot", "9"], 1, "there is no timeline number 9"),
        (["plot"], 1, "there is no timeline in this folder"),
        (["plot", "capture"], 1, "is a capture, not a timeline"),
        (["plot", "rise.dat", "-o", "x.pdf"], 2, "use .svg, .png, .html or .txt"),
        (["plot", "rise.dat", "-o", "missing/x.svg"], 1, "cannot write"),
        (["plot", "rise.dat", "-w", "5"], 2, "two numbers of seconds"),
        (["plot", "rise.dat", "-w", "50,60"], 1, "no samples in this range"),
    ],
)
def test_wrong_arguments_are_reported_in_one_sentence(
    rising: Path, arguments: list[str], code: int, words: str
) -> None:
    (rising.parent / "empty").write_text("")
    (rising.parent / "foreign.csv").write_text("a,b\n1,2\n")
    (rising.parent / "capture").write_bytes(b"\x89TIDE\r\n\x1a\0\0\0")
    done = heaptide(*arguments, cwd=rising.parent, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in one_sentence(done.stderr)
