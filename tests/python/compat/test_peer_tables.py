"""Tests that the tables in docs/coming-from have every public name and option of the installed peers, in its row."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import REPOSITORY

pytestmark = pytest.mark.once

for _module in ("memory_profiler", "guppy", "objgraph"):
    pytest.importorskip(_module, reason=f"{_module} has no wheel for this interpreter")

# Programs that collect the names of a peer by group. The one for objgraph also runs with Heaptide's module `objgraph`.
NAMES = {
    "memory-profiler": """
import inspect, memory_profiler, mprof
names = {}
for module in (memory_profiler, mprof):
    own = {name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__}
    names[module.__name__] = [name for name in own if not name.startswith("_")]
names["memory_profiler"] += ["_get_memory", "_get_child_memory", "has_tracemalloc"]
names["mprof"] += ["ALL_ACTIONS", "help_msg", "logger"]
for name in ("LineProfiler", "CodeMap", "TimeStamper", "LogFile", "MemTimer", "MemoryProfilerMagics"):
    owned = vars(getattr(memory_profiler, name))
    names["memory_profiler." + name] = [each for each in owned if not each.startswith("_")]
""",
    "objgraph": """
import inspect, objgraph
own = [name for name, value in vars(objgraph).items() if getattr(value, "__module__", None) == "objgraph"]
names = {"objgraph": [name for name in own if not name.startswith("_")] + ["__version__", "IS_INTERACTIVE"]}
for name in list(names["objgraph"]):
    if callable(getattr(objgraph, name)):
        parameters = inspect.signature(getattr(objgraph, name)).parameters
        names["parameters of objgraph." + name] = [
            each for each in parameters if not each.startswith("_") and each != "kw"
        ]
""",
    "guppy": """
import re, guppy
hp = guppy.hpy()
listed = re.findall(r"(?:^ *|  )([A-Za-z]\\\\w+)(?=  |$)", str(hp.doc), re.MULTILINE)
names = {
    "guppy": ["hpy", "Root", "heapy", "sets", "__version__"],
    "guppy.sets": [name for name in vars(guppy.sets) if not name.startswith("_")],
    "guppy.hpy()": sorted({*listed, *(name for name in dir(hp) if not name.startswith("_"))}),
    "guppy.hpy().iso(1)": [name for name in dir(hp.iso(1)) if not name.startswith("_")],
}
""".replace("\\\\\\\\", "\\\\"),
}

ACTIONS = ("run", "attach", "list", "rm", "clean", "plot", "peak")
# Names that belong to IPython's base class, not to memory_profiler.
NOT_PUBLIC = {"magics", "registered"}


def names_of(peer: str) -> dict[str, list[str]]:
    """Return the public names of the installed peer."""
    code = NAMES[peer] + "\nimport json\nprint(json.dumps(names))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {
        group: [name for name in names if name not in NOT_PUBLIC] for group, names in json.loads(done.stdout).items()
    }


# Group → first cell in the head of its table. A group without a table is in the rows that name its last part.
TABLES = {
    "memory_profiler": "name",
    "mprof": "function of the module `mprof`",
    "objgraph": "name",
    "guppy": "`from guppy import`",
    "guppy.hpy()": "`hp = hpy()`",
    "guppy.hpy().iso(1)": "set `h`",
}


def tables(peer: str) -> dict[str, list[str]]:
    """Return the rows of each table of a page, by the first cell of its head."""
    found: dict[str, list[str]] = {}
    lines = Path(REPOSITORY, f"docs/coming-from/{peer}.md").read_text().splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|") and not before.startswith("|"):
            rows = found[line.split("|")[1].strip()] = []
        elif line.startswith("|"):
            rows.append(line)
    return found


def words_of(rows: list[str]) -> set[str]:
    """Return the names and options in the first cells of rows."""
    cells = [re.split(r"(?<!\\)\|", row)[1] for row in rows]
    return set(re.findall(r"--?[\w-]+|\w+", " ".join(re.findall(r"`[^`]*`", " ".join(cells)))))


def rows_for(peer: str, group: str) -> list[str]:
    """Return the rows that must have the names of a group."""
    found = tables(peer)
    if group in TABLES:
        return found[TABLES[group]]
    last = group.rpartition(".")[2]
    rows = [row for rows in found.values() for row in rows if re.search(rf"`{last}\b", row)]
    if group.startswith("parameters of "):
        # Read only the parentheses of this function, unless an ellipsis in them refers to another function.
        own = [f"| {each} |" for row in rows for each in re.findall(rf"`{last}\([^`]*`", row)]
        return own if own and "\u2026" not in own[0] else rows
    return rows


@pytest.mark.parametrize("peer", NAMES)
def test_every_public_name_is_in_its_row(peer: str) -> None:
    for group, names in names_of(peer).items():
        assert set(names) - words_of(rows_for(peer, group)) == set(), group


@pytest.mark.parametrize("peer", NAMES)
def test_every_name_that_the_table_offers_exists(peer: str) -> None:
    missing = words_of([row for rows in tables(peer).values() for row in rows if "| \u2013 " in row])
    groups = {group: names for group, names in names_of(peer).items() if not group.startswith("parameters of ")}
    code = (
        "import guppy, json, memory_profiler, mprof, objgraph\n"
        f"groups, missing = {groups!r}, {sorted(missing)!r}\n"
        "owners = {group: eval(group) for group in groups}\n"
        "print(json.dumps([f'{group}.{name}' for group, names in groups.items() for name in names"
        " if name not in missing and not hasattr(owners[group], name)]))"
    )
    environment = {**os.environ, "HEAPTIDE_COMPAT": "memory_profiler,guppy,objgraph"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def options(*words: str, **variables: str) -> set[str]:
    """Return the options in the help of a command."""
    command = [sys.executable, "-m", *words, "--help"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", done.stdout.partition("options:")[2]))


@pytest.mark.parametrize("words", ["memory_profiler", *(f"mprof {name}" for name in ACTIONS)])
def test_every_option_is_in_the_table_and_accepted(words: str) -> None:
    of_peer = options(*words.split())
    assert len(of_peer) >= 2
    found = tables("memory-profiler")
    rows = found["option of `python -m memory_profiler`"]
    if words != "memory_profiler":
        rows = [row for row in found["command and option"] if f"`{words.split()[1]}`" in row]
    assert of_peer - words_of(rows) == set()
    assert of_peer - options(*words.split(), HEAPTIDE_COMPAT="mprof") == set()


def test_functions_of_objgraph_accept_the_same_arguments() -> None:
    code = NAMES["objgraph"] + "\nimport json\nprint(json.dumps(names))"
    environment = {**os.environ, "HEAPTIDE_COMPAT": "objgraph"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    offered = json.loads(done.stdout)
    for group, names in names_of("objgraph").items():
        if group.startswith("parameters of ") and group in offered:
            assert set(names) <= set(offered[group]), group
