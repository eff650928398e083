"""Tests what the documentation of Flyte's plugin for memray describes: import, example, parameters and files."""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path

import pytest
from heaptide import memray_profiling
from platform_support.deck_pages import Page
from platform_support.environments import Environment

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.behaviour("document", "frame", "workflow")
def test_documented_example_gives_folder_capture_page_and_deck(flyte: Environment, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "document.py", tmp_path / "example.py")
    done = flyte.run("python", "example.py", cwd=tmp_path, TMPDIR=str(tmp_path), HEAPTIDE_COMPAT="memray")
    assert done.stderr == ""
    # Steps 1 and 2: the folder, and a capture with the name of the function and the time.
    (capture,) = (tmp_path / "memray_bin").glob("*.bin")
    assert re.fullmatch(r"my_memory_intensive_task\.\d{14}\.bin", capture.name)
    # Step 3: the page next to it.
    assert (tmp_path / "memray_bin" / f"flamegraph.{capture.stem}.html").exists()
    # Step 4: the deck.
    (path,) = tmp_path.glob("flyte-*/**/deck.html")
    page = Page(path)
    assert page.titles == ["Memray Flamegraph"]
    assert "my_memory_intensive_task (example.py:13) holds most at the peak" in page.findings()
    assert len(page.text) <= 500_000


@pytest.mark.behaviour("document")
def test_workflow_runs_from_the_command_line(flyte: Environment, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "document.py", tmp_path / "example.py")
    command = ("pyflyte", "run", "example.py", "my_profiling_workflow")
    flyte.run(*command, cwd=tmp_path, TMPDIR=str(tmp_path), HEAPTIDE_COMPAT="memray")
    assert [Page(path).titles for path in tmp_path.glob("flyte-*/**/deck.html")] == [["Memray Flamegraph"]]


@pytest.mark.behaviour("inert")
def test_installed_plugin_is_imported_without_the_setting(flyte: Environment, tmp_path: Path) -> None:
    program = "import flytekitplugins.memray.profiling as p, sys; print(p.__file__, 'heaptide' in sys.modules)"
    plain = flyte.run("python", "-c", program, cwd=tmp_path).stdout
    assert "site-packages/flytekitplugins/memray/profiling.py False" in plain
    of_heaptide = flyte.run("python", "-c", program, cwd=tmp_path, HEAPTIDE_COMPAT="memray").stdout
    assert "heaptide/compat/flytekitplugins/memray/profiling.py True" in of_heaptide


@pytest.mark.behaviour("parameters")
def test_decorator_has_the_parameters_and_defaults_of_the_plugin(flyte: Environment, tmp_path: Path) -> None:
    program = "import inspect, flytekitplugins.memray as p; print(inspect.signature(p.memray_profiling.__init__))"
    of_plugin = flyte.run("python", "-c", program, cwd=tmp_path).stdout
    names = re.findall(r"(\w+): [^=]* = ([^,)]*)", of_plugin)
    of_heaptide = [(name, str(each.default)) for name, each in inspect.signature(memray_profiling).parameters.items()]
    assert len(names) == 7 and [(name, value.strip("'")) for name, value in names] == of_heaptide


@pytest.mark.behaviour("refusals")
@pytest.mark.parametrize(
    "options",
    [
        {"memray_html_reporter": "pie"},
        {"memray_html_reporter": "stats"},
        {"memray_reporter_args": ["--nonsense"]},
        {"memray_reporter_args": ["x--y"]},
        {"memray_reporter_args": [1]},
        {"memray_reporter_args": ["leaks"]},
    ],
)
def test_unknown_reporters_and_options_are_refused_at_decoration(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"pie|stats|options|does not take"):
        memray_profiling(**options)


@pytest.mark.behaviour("refusals")
@pytest.mark.parametrize("arguments", [["--leaks"], ["--temporary-allocation-threshold", "5"], None])
def test_options_of_the_reporter_are_accepted_with_their_values(arguments: list[str] | None) -> None:
    def function() -> int:
        return 3

    assert memray_profiling(memray_reporter_args=arguments)(function).__name__ == "function"
