"""Tests that exports contain the recorded numbers, and that the tools they are for can read them.

The exact text of each format is tested with the command (crates/cli/tests/transform.rs). Here the captures are real,
and other tools read them: Go's pprof, gprof2dot, the csv module and a JSON schema validator.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import REPOSITORY, Finished, heaptide

# Exports do not depend on the Python version.
pytestmark = pytest.mark.once
SCHEMA = REPOSITORY / "docs" / "reference" / "schema" / "model-1.json"
MIB = 1 << 20

# Anonymous mappings have the same size under every interpreter. Live at the peak: 8 + 16 MiB; at the end: 8 + 4 MiB.
PROGRAM = """\
import mmap, threading

def take(size):
    return mmap.mmap(-1, size)

def keep(size):
    kept.append(take(size))

kept = []
keep(8 << 20)
take(16 << 20).close()
worker = threading.Thread(target=keep, args=(4 << 20,), name='a "worker"')
worker.start()
worker.join()
"""
TAKE, KEEP, FIRST, SECOND = 4, 7, 10, 11


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record the program once for all tests."""
    folder = tmp_path_factory.mktemp("transform")
    (folder / "program.py").write_text(PROGRAM)
    heaptide("run", "-q", "-o", "job.tide", "program.py", cwd=folder)
    return folder / "job.tide"


def export(capture: Path, format_: str, *options: str) -> str:
    """Return a capture in another format."""
    return heaptide("transform", format_, *options, "-o", "-", capture).stdout


def model_of(capture: Path) -> dict[str, Any]:
    """Return a capture as the JSON model."""
    model: dict[str, Any] = json.loads(export(capture, "json"))
    return model


def own_frames(model: dict[str, Any], stack: int | None) -> list[tuple[str, int]]:
    """Return the functions and lines of the program in a stack, innermost first."""
    frames = []
    while stack is not None:
        frame = model["frames"][model["stacks"][stack]["frame"]]
        if frame["file"].endswith("program.py"):
            frames.append((frame["function"], frame["line"]))
        stack = model["stacks"][stack]["parent"]
    return frames


def mappings(model: dict[str, Any]) -> dict[tuple[tuple[str, int], ...], tuple[int, int, int]]:
    """Return total, peak and leaked bytes of the program's mappings by stack."""
    [process] = model["processes"]
    found: dict[tuple[tuple[str, int], ...], tuple[int, int, int]] = {}
    for site in process["sites"]:
        frames = own_frames(model, site["stack"])
        if site["allocator"] == "MMAP" and frames and frames[0] == ("take", TAKE):
            total, peak, leaked = (site[view]["bytes"] for view in ("total", "peak", "leaked"))
            found[tuple(frames)] = (total, peak, leaked)
    return found


def test_json_has_every_mapping_with_its_stack_and_three_sums(recorded: Path) -> None:
    first = (("take", TAKE), ("keep", KEEP), ("<module>", FIRST))
    second = (("take", TAKE), ("<module>", SECOND))
    in_thread = (("take", TAKE), ("keep", KEEP))
    assert mappings(model_of(recorded)) == {
        first: (8 * MIB, 8 * MIB, 8 * MIB),
        second: (16 * MIB, 16 * MIB, 0),
        in_thread: (4 * MIB, 0, 4 * MIB),
    }


def test_json_sums_equal_those_of_stats(recorded: Path, stats: Callable[..., dict[str, Any]]) -> None:
    model, expected = model_of(recorded), stats(recorded)
    [process] = model["processes"]
    [summary] = expected["heaptide"]["processes"]
    assert model["peak_bytes"] == expected["metadata"]["peak_memory"] == process["peak"]["bytes"]
    for view, n_bytes in [
        ("total", expected["total_bytes_allocated"]),
        ("peak", summary["peak_bytes"]),
        ("leaked", summary["live_bytes"]),
    ]:
        assert process[view]["bytes"] == n_bytes
        assert sum(site[view]["bytes"] for site in process["sites"]) == n_bytes
    assert process["total"]["count"] == expected["total_num_allocations"]
    assert process["heap"]["bytes"][-1] == summary["live_bytes"]
    assert max(process["heap"]["bytes"]) == summary["peak_bytes"]
    assert process["python_version"] == ".".join(map(str, sys.version_info[:3])) + prerelease()


def prerelease() -> str:
    """Return the suffix of a pre-release version, such as `rc1`."""
    level = {"alpha": "a", "beta": "b", "candidate": "rc", "final": ""}[sys.version_info.releaselevel]
    return f"{level}{sys.version_info.serial}" if level else ""


def closed(schema: Any) -> Any:
    """Return the schema with additional members forbidden."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: closed(part) for key, part in schema.items()}
    if changed.get("type") == "object" and "properties" in changed:
        changed["additionalProperties"] = False
    return changed


@pytest.mark.parametrize("options", [[], ["--sample=16k"], ["--objects"]], ids=["exact", "sampled", "objects"])
def test_json_conforms_to_the_published_schema_without_extra_members(
    heaptide_run: Callable[..., Finished], options: list[str]
) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: nothing validates the schema")
    schema = closed(json.loads(SCHEMA.read_text()))
    jsonschema.Draft202012Validator.check_schema(schema)
    capture = heaptide_run("kept = [bytes(3000) for _ in range(1000)]", *options).capture
    jsonschema.Draft202012Validator(schema).validate(model_of(capture))


def test_csv_rows_add_up_to_the_peak_and_name_threads(recorded: Path) -> None:
    peak = model_of(recorded)["peak_bytes"]
    rows = list(csv.DictReader(io.StringIO(export(recorded, "csv"))))
    assert list(rows[0]) == ["allocator", "num_allocations", "size", "tid", "thread_name", "stack_trace"]
    assert sum(int(row["size"]) for row in rows) == peak
    [leaked] = [
        row
        for row in csv.DictReader(io.StringIO(export(recorded, "csv", "--leaks")))
        if row["allocator"] == "MMAP" and row["size"] == str(4 * MIB)
    ]
    assert leaked["thread_name"] == 'a "worker"'
    assert leaked["num_allocations"] == "1"
    innermost = leaked["stack_trace"].split("|")[0]
    assert innermost == f"take;{recorded.parent / 'program.py'};{TAKE}"


def test_collapsed_lines_add_up_to_the_peak(recorded: Path) -> None:
    program = recorded.parent / "program.py"
    lines = export(recorded, "collapsed").splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == model_of(recorded)["peak_bytes"]
    assert f"<module> ({program}:{SECOND});take ({program}:{TAKE}) {16 * MIB}" in lines


def test_speedscope_profiles_have_the_sums_of_their_views(recorded: Path) -> None:
    [process] = model_of(recorded)["processes"]
    profile = json.loads(export(recorded, "speedscope"))
    ends = {each["name"]: each["endValue"] for each in profile["profiles"]}
    assert ends == {
        "Memory at the peak": process["peak"]["bytes"],
        "Leaked": process["leaked"]["bytes"],
        "Allocations": process["total"]["count"],
        "Temporary": sum(site["temporary"]["count"] for site in process["sites"]),
    }
    n_frames = len(profile["shared"]["frames"])
    for each in profile["profiles"]:
        assert each["type"] == "sampled"
        assert sum(each["weights"]) == each["endValue"]
        assert len(each["weights"]) == len(each["samples"])
        assert all(sample and max(sample) < n_frames for sample in each["samples"])


def test_gprof2dot_draws_the_functions_with_their_share(recorded: Path, tmp_path: Path) -> None:
    pytest.importorskip("gprof2dot", reason="gprof2dot is not installed: nothing reads its format")
    (tmp_path / "x.json").write_text(export(recorded, "gprof2dot"))
    command = [sys.executable, "-m", "gprof2dot", "-f", "json", "--node-thres=0", str(tmp_path / "x.json")]
    drawn = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    share = 24 * MIB * 100 / model_of(recorded)["peak_bytes"]
    assert re.search(rf"program\.py\\ntake\\n{share:.2f}%\\n\({share:.2f}%\)", drawn), drawn


def test_chrome_counters_have_a_process_a_name_and_rising_times(recorded: Path) -> None:
    model = model_of(recorded)
    [process] = model["processes"]
    trace = json.loads(export(recorded, "chrome"))
    events = trace["traceEvents"]
    assert {event["pid"] for event in events} == {process["pid"]}
    for name, series in [("heap", process["heap"]), ("resident size", process["resident"])]:
        counters = [event for event in events if event["ph"] == "C" and event["name"] == name]
        times = [event["ts"] for event in counters]
        assert times == sorted(times)
        values = [event["args"]["bytes"] for event in counters]
        assert max(values) == max(series["bytes"])
        assert values[-1] == series["bytes"][-1]
    [mark] = [event for event in events if event["ph"] == "i"]
    assert mark["args"]["bytes"] == model["peak_bytes"]


def test_processes_are_exported_separately(heaptide_run: Callable[..., Finished]) -> None:
    one = heaptide_run("import mmap; kept = mmap.mmap(-1, 4 << 20)").capture
    two = heaptide_run("import mmap; kept = mmap.mmap(-1, 8 << 20)").capture
    model = json.loads(heaptide("transform", "json", "-o", "-", one, two).stdout)
    largest = [max(site["leaked"]["bytes"] for site in process["sites"]) for process in model["processes"]]
    assert largest == [4 * MIB, 8 * MIB]
    trace = json.loads(heaptide("transform", "chrome", "-o", "-", one, two).stdout)
    names = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    pids = [process["pid"] for process in model["processes"]]
    assert [Path(names[pid]).name for pid in pids] == ["program1.py", "program2.py"]


def pprof_programs() -> Iterator[list[str]]:
    """Find Go's pprof: named by the environment, on the path, or in the folders of Debian's packages."""
    if named := os.environ.get("HEAPTIDE_TEST_PPROF"):
        yield [named]
    if go := shutil.which("go"):
        yield [go, "tool", "pprof"]
    for found in sorted(Path("/usr/lib").glob("go-*/pkg/tool/*/pprof")):
        yield [str(found)]


@pytest.fixture(scope="module")
def pprof() -> Callable[..., str]:
    """Run Go's pprof on a profile."""
    command = next(pprof_programs(), None)
    if command is None:
        pytest.skip(
            "no pprof: install golang-go, or name the program by HEAPTIDE_TEST_PPROF, to check the pprof export"
        )

    def ask(profile: Path, *options: str) -> str:
        done = subprocess.run([*command, *options, str(profile)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return ask


def pprof_totals(pprof: Callable[..., str], profile: Path) -> dict[str, int]:
    """Return the sums of a profile as pprof reads them."""
    totals = {}
    for index, view in [("alloc", "total"), ("inuse", "leaked"), ("peak", "peak")]:
        for what in ("space", "objects"):
            text = pprof(profile, "-top", "-unit=bytes", f"-sample_index={index}_{what}")
            found = re.search(r"Total samples = (\d+)", text)
            totals[f"{view} {what}"] = int(found[1]) if found else 0
    return totals


@pytest.mark.parametrize("options", [[], ["--sample=16k"]], ids=["exact", "sampled"])
def test_pprof_reads_the_sums_of_the_model(
    heaptide_run: Callable[..., Finished], pprof: Callable[..., str], tmp_path: Path, options: list[str]
) -> None:
    capture = heaptide_run("kept = [bytes(3000) for _ in range(5000)]; del kept[2000:]", *options).capture
    profile = tmp_path / "x.pb.gz"
    heaptide("transform", "pprof", "-o", profile, capture)
    [process] = model_of(capture)["processes"]
    totals = pprof_totals(pprof, profile)
    assert totals == {
        f"{view} {what}": sum(site[view][key] for site in process["sites"])
        for view in ("total", "leaked", "peak")
        for what, key in (("space", "bytes"), ("objects", "count"))
    }
    # 15 MB were allocated, of which sampling takes a sixth; the bounds are ten standard deviations away.
    assert 10_000_000 < totals["total space"] < 20_000_000


def test_pprof_shows_functions_lines_threads_and_times(
    recorded: Path, pprof: Callable[..., str], tmp_path: Path
) -> None:
    profile, program = tmp_path / "x.pb.gz", recorded.parent / "program.py"
    heaptide("transform", "pprof", "-o", profile, recorded)
    top = pprof(profile, "-top", "-lines", "-unit=bytes", "-nodefraction=0")
    assert "Type: peak_space" in top
    assert re.search(rf"^\s*{24 * MIB}B\s.*\stake {program}:{TAKE}$", top, re.MULTILINE), top
    assert re.search(rf"\s{16 * MIB}B\s.*<module> {program}:{SECOND}$", top, re.MULTILINE), top
    in_thread = pprof(profile, "-top", "-unit=bytes", "-sample_index=inuse_space", '-tagfocus=thread=a "worker"')
    assert re.search(rf"^\s*{4 * MIB}B\s.*\stake$", in_thread, re.MULTILINE), in_thread
    model = model_of(recorded)
    raw = pprof(profile, "-raw")
    assert f"pid:[{model['processes'][0]['pid']}]" in raw
    assert f"Time: {model['start_time'][:26]}" in raw
    duration = re.search(r"^Duration: ([\d.]+)(us|ms|s)", top, re.MULTILINE)
    assert duration, top
    unit_ns = {"us": 1e3, "ms": 1e6, "s": 1e9}[duration[2]]
    assert float(duration[1]) == pytest.approx(model["duration_ns"] / unit_ns, abs=0.006)


def test_pprof_shows_leaks_first_on_request(recorded: Path, pprof: Callable[..., str], tmp_path: Path) -> None:
    profile = tmp_path / "x.pb.gz"
    heaptide("transform", "pprof", "--leaks", "-o", profile, recorded)
    assert "Type: inuse_space" in pprof(profile, "-top")
