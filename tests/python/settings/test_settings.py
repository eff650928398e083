"""Tests that settings are declared once, documented, and read from files and environment without stopping a program."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from heaptide import messages, platforms, setting_values, settings
from heaptide.activation import config_files, toml_for_310
from support.commands import REPOSITORY

pytestmark = pytest.mark.once


TOML = """
title = "settings"
[profiling]
trace_components = ["scheduler", "api"]  # a list
keep = 3
objects = true
out = 'x/{component}.tide'
[components]
worker = "worker.py --queue *"
"""
INI = """
[profiling]
trace_components = scheduler, api
keep = 3
objects = yes
out = x/{component}.tide
[components]
worker = worker.py --queue *
"""


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages printed during the test."""
    lines: list[str] = []
    monkeypatch.setattr(messages, "print_message", lines.append)
    monkeypatch.setattr(messages, "_printed", set())
    return lines


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> Any:
    """Resolve the settings of a program started in a folder."""
    monkeypatch.chdir(folder)
    return settings.resolve(environment, config_files.find(environment))


@pytest.mark.parametrize("name", ["heaptide.toml", "heaptide.cfg", "pyproject.toml", "elsewhere.ini"])
def test_every_file_format_gives_the_same_settings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[str]
) -> None:
    text = TOML if name.endswith(".toml") else INI
    if name == "pyproject.toml":
        text = "[project]\nname = 'job'\n" + text.replace("[profiling]", "[tool.heaptide.profiling]").replace(
            "[components]", "[tool.heaptide.components]"
        ).replace("title", "#title")
    (tmp_path / name).write_text(text)
    chosen = load(tmp_path, monkeypatch, **({"HEAPTIDE_CONFIG": name} if name == "elsewhere.ini" else {}))
    assert (chosen.trace_components, chosen.keep, chosen.objects) == (["scheduler", "api"], 3, True)
    assert (chosen.out, chosen.patterns) == ("x/{component}.tide", {"worker": "worker.py --queue *"})
    assert chosen.interval == 10 and printed == []


def test_environment_overrides_files_and_long_names_override_short_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "heaptide.cfg").write_text(INI)
    assert load(tmp_path, monkeypatch, HEAPTIDE_KEEP="7").keep == 7
    assert load(tmp_path, monkeypatch, HEAPTIDE_KEEP="7", HEAPTIDE__PROFILING__KEEP="8").keep == 8
    assert load(tmp_path, monkeypatch, HEAPTIDE__PROFILING__TRACE_COMPONENTS="").trace_components == []
    assert load(tmp_path, monkeypatch, HEAPTIDE_CONFIG="off").keep == 5
    (tmp_path / "folder").mkdir()
    assert load(tmp_path / "folder", monkeypatch, HEAPTIDE_HOME=str(tmp_path)).keep == 3


def test_invalid_values_are_reported_once_and_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[str]
) -> None:
    (tmp_path / "heaptide.cfg").write_text("[profiling]\nkeep = 3\nkep = 4\n")
    for _ in range(2):
        chosen = load(
            tmp_path, monkeypatch, HEAPTIDE_KEEP="many", HEAPTIDE_OBJECTS="perhaps", HEAPTIDE_MAX_SIZE="5 gallons"
        )
        assert (chosen.keep, chosen.objects, chosen.max_size) == (3, False, 0)
    assert len(printed) == 4
    for word in ("HEAPTIDE_KEEP is 'many'", "HEAPTIDE_OBJECTS is 'perhaps'", "HEAPTIDE_MAX_SIZE", "no setting kep"):
        assert sum(word in line for line in printed) == 1, printed


@pytest.mark.parametrize("name", ["heaptide.toml", "heaptide.cfg"])
def test_file_with_invalid_syntax_is_reported_and_ignored(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[str]
) -> None:
    (tmp_path / name).write_text("[profiling\nkeep = = 3\n")
    assert load(tmp_path, monkeypatch).keep == 5
    assert len(printed) == 1 and name in printed[0] and "\n" not in printed[0]


def test_sizes_and_words_are_parsed() -> None:
    sizes = {"4096": 4096, "512k": 524_288, "1MiB": 1 << 20, "1.5M": 3 << 19, "2kB": 2000, "1g": 1 << 30, "0": 0}
    assert {text: setting_values.size(text) for text in sizes} == sizes
    assert setting_values.sample("yes") is True and setting_values.sample("off") == 0
    assert setting_values.run("run") and setting_values.run("1") and not setting_values.run("off")
    assert setting_values.words(" a ,,b") == ["a", "", "b"] and setting_values.words("  ") == []
    for text in ("", "k", "inf", "nan", "-1", "99999999g"):
        with pytest.raises(ValueError):
            setting_values.size(text)


def test_every_name_is_declared_once() -> None:
    known = platforms.all_platforms()
    names = [name for setting in settings.ALL for name in setting.environment_names(known)]
    names += settings.ENVIRONMENT_ONLY
    names += [name for platform in known for name in platform.documented]
    assert len(names) == len(set(names))
    sources = [*(REPOSITORY / "python").rglob("*.py"), *REPOSITORY.glob("crates/*/src/**/*.rs")]
    shape = re.compile(r"\"((?:HEAPTIDE|MEMRAY|COMPSS|AIRFLOW|MRQ|FLYTE)_[A-Z_]+|HEAPTIDE|NO_COLOR)\"")
    used = {name for path in sources for name in shape.findall(path.read_text())}
    assert used <= set(names), f"used without a declaration: {used - set(names)}"


def test_documentation_of_settings_is_up_to_date() -> None:
    path = REPOSITORY / "scripts" / "settings_page.py"
    spec = importlib.util.spec_from_file_location("settings_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "docs/reference/settings.md is old; run scripts/settings_page.py"


DOCUMENTS = [
    TOML,
    "a.b.c = 1\n'quoted key' = \"x\\ty\\u00e9\"\n",
    "[a]\nlist = [ 'x', # why\n  \"y\",\n]\n[a.b]\nn = -1_000\n",
    "t = {x = 1, 'y' = [true, false]}\n",
]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib to compare with")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_toml_reader_for_3_10_agrees_with_tomllib(document: str) -> None:
    import tomllib

    assert toml_for_310.loads(document) == tomllib.loads(document)


def test_toml_reader_for_3_10_skips_unknown_values() -> None:
    document = '''
[tool.other]
text = """
[tool.heaptide.profiling]
keep = 1 """
when = 1979-05-27T07:32:00Z
ratio = 1.5
[[tool.other.list]]
keep = 2
[tool.heaptide.profiling]
keep = 3
'''
    tables = toml_for_310.loads(document)["tool"]
    assert tables["heaptide"] == {"profiling": {"keep": 3}}
    assert tables["other"] == {"text": None, "when": None, "ratio": None}


@pytest.mark.parametrize("broken", ["[a", "[[a", "[a.]", "['a", "a = ", "a = [1", "a = 'x", "= 1", "a = [1] 2"])
def test_toml_reader_for_3_10_names_the_line_of_an_error(broken: str) -> None:
    with pytest.raises(ValueError, match=r"in line 5$"):
        toml_for_310.loads(f"# a comment\n[table]\nkey = 1\n\n{broken}\n")


def test_heaptides_names_override_airflows_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "airflow.cfg").write_text(
        "[profiling]\nmemray_trace_components = api\nmemray_detailed_tracing = True\n"
    )
    home: Mapping[str, str] = {"AIRFLOW_HOME": str(tmp_path)}
    chosen = load(tmp_path, monkeypatch, **home)
    assert (chosen.trace_components, chosen.detailed_tracing, chosen.home) == (["api"], True, str(tmp_path))
    chosen = load(tmp_path, monkeypatch, **home, AIRFLOW__PROFILING__MEMRAY_TRACE_COMPONENTS="scheduler, triggerer")
    assert chosen.trace_components == ["scheduler", "triggerer"]
    chosen = load(
        tmp_path,
        monkeypatch,
        **home,
        AIRFLOW__PROFILING__MEMRAY_TRACE_COMPONENTS="scheduler",
        HEAPTIDE__PROFILING__TRACE_COMPONENTS="dag_processor",
    )
    assert chosen.trace_components == ["dag_processor"]
