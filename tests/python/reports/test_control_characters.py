"""Tests that no command passes control characters in names on to a terminal: a capture may come from a stranger."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide
from support.controlled_program import start_program
from support.terminal_screen import TerminalScreen

pytestmark = pytest.mark.once

# Clipboard, window title, clear screen, colours, C1 control, delete, carriage return, right-to-left override, isolate,
# and a whole forged line.
FORGED = "FORGED LINE"
HOSTILE = "\x1b]52;c;aGk=\x07\x1b]0;title\x07\x1b[2J\x1b[8m\x9b31m\x7f\r\u202e\u2066\n" + FORGED
_INTERPRETED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_OWN_COLOURS = re.compile("\x1b\\[(0|1|2|3[0-7]|9[0-7])m")

_PROGRAM = """\
import sys, threading, time

HOSTILE = {hostile!r}
name = "f" + HOSTILE
code = "def f():\\n    kept.append(bytearray(2_000_000))\\n    kept.append(Type())\\n    temporary = bytearray(1_000_000)\\n"
kept = []
Type = type("T" + HOSTILE, (), {{"attribute" + HOSTILE: "value" + HOSTILE}})
names = {{"kept": kept, "Type": Type}}
exec(compile(code, "file" + HOSTILE + ".py", "exec"), names)
f = names["f"]
f.__code__ = f.__code__.replace(co_name=name, co_qualname=name) if sys.version_info >= (3, 11) else f.__code__
thread = threading.Thread(target=f, name="thread" + HOSTILE)
thread.start()
thread.join()
f()
kept.append({{"key" + HOSTILE: kept}})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with captures, a snapshot and a timeline full of hostile names, and a file with such a name."""
    folder = tmp_path_factory.mktemp("hostile")
    script = folder / "job.py"
    script.write_text(_PROGRAM.format(hostile=HOSTILE))
    for name in ("a", "b"):
        heaptide("run", "-q", "--native", "-o", f"{name}.tide", "job.py", "argument" + HOSTILE, cwd=folder)
        take = ["heap", "take", "--values", "-o", f"{name}.heap", "job.py", "argument" + HOSTILE]
        heaptide(*take, cwd=folder)
    words = [sys.executable, "job.py", "argument" + HOSTILE]
    heaptide("record", "-q", "-o", "a.timeline", *words, cwd=folder)
    (folder / f"heaptide-job{HOSTILE}.1.timeline").write_bytes((folder / "a.timeline").read_bytes())
    return folder


COMMANDS = [
    "stats a.tide",
    "stats --json a.tide",
    "summary a.tide",
    "summary --leaks a.tide",
    "tree --plain a.tide",
    "tree --plain --leaks a.tide",
    "parse a.tide",
    "diff a.tide b.tide",
    "diff --json a.tide b.tide",
    "lines --from a.tide",
    "live a.tide",
    "peak a.timeline",
    "plot a.timeline",
    "list",
    "heap types a.heap",
    "heap types --json a.heap",
    "heap suspects a.heap",
    "heap dominators a.heap",
    "heap waste a.heap",
    "heap diff a.heap b.heap",
    "heap paths a.heap --kind T*",
    "heap show a.heap",
    "heap graph a.heap --kind T*",
    "stats --thread nobody a.tide",
    "stats --include nothing a.tide",
]


def _check(text: str, source: str) -> None:
    found = _INTERPRETED.search(_OWN_COLOURS.sub("", text))
    assert found is None, f"{source}: {text[max(0, found.start() - 80) : found.end() + 20]!r}"
    if " csv " not in source:  # CSV quotes line feeds
        assert not re.search(rf"^\s*{FORGED}", text, re.MULTILINE), f"{source}: {text!r}"


@pytest.mark.parametrize("command", COMMANDS)
def test_piped_output_has_no_control_characters(folder: Path, command: str) -> None:
    done = heaptide(*command.split(), cwd=folder, check=False)
    assert done.stdout or done.stderr
    assert done.returncode in (0, 3), done.stderr
    _check(done.stdout, f"{command}, output")
    _check(done.stderr, f"{command}, messages")


@pytest.mark.parametrize("command", ["stats a.tide", "tree --plain a.tide", "transform csv -o - a.tide"])
def test_output_to_a_terminal_has_only_own_colours(folder: Path, command: str) -> None:
    words = [sys.executable, "-m", "heaptide", *command.split()]
    written = _on_a_terminal(words, folder)
    assert "bytearray" in written or "f\\u001b" in written
    _check(written.replace("\r\n", "\n"), command)


def test_exports_keep_names_by_the_rules_of_their_format(folder: Path) -> None:
    table = heaptide("transform", "csv", "-o", "-", "a.tide", cwd=folder).stdout
    assert "\x1b]52;c;aGk=\x07" in table
    facts = json.loads(heaptide("stats", "--json", "a.tide", cwd=folder).stdout)
    assert "argument" + HOSTILE.replace("\n", "\\n") in facts["metadata"]["command_line"]


@pytest.mark.parametrize("command", ["live a.tide", "tree a.tide"])
def test_interactive_view_shows_no_control_characters(folder: Path, command: str) -> None:
    screen = TerminalScreen([sys.executable, "-m", "heaptide", *command.split()], columns=160, lines=40, cwd=folder)
    try:
        screen.wait_for_full_screen()
        if command.startswith("tree"):
            screen.type("e")
        screen.wait_for("]52")
        for sequence in (b"\x1b]52", b"\x1b]0;", b"\x1b[8m", "\u202e".encode(), b"\xc2\x9b"):
            assert sequence not in screen.written
    finally:
        screen.close()


@pytest.mark.parametrize("command", ["stats", "summary", "tree", "heap types", "plot", "flamegraph", "diff a.tide"])
def test_messages_escape_the_names_of_files(folder: Path, command: str) -> None:
    bad = folder / ("bad" + HOSTILE.replace("/", "") + ".tide")
    for exists in (False, True):
        if exists:
            bad.write_text("no capture")
        done = heaptide(*command.split(), bad.name, cwd=folder, check=False)
        assert done.returncode == 1 and "bad\\u001b" in done.stderr
        _check(done.stdout + done.stderr, command)
    bad.unlink()
    done = heaptide(command.split()[0], "--no-such" + HOSTILE, cwd=folder, check=False)
    assert done.returncode == 2
    _check(done.stdout + done.stderr, command)


def test_path_of_a_written_report_is_escaped(folder: Path, tmp_path: Path) -> None:
    done = heaptide("flamegraph", "-o", tmp_path / ("page" + HOSTILE), "a.tide", cwd=folder)
    assert "Wrote " in done.stdout
    _check(done.stdout, "flamegraph")


def test_messages_in_the_program_escape_names(tmp_path: Path) -> None:
    environment = {**os.environ, "HEAPTIDE": "run", "HEAPTIDE_OUT": "missing" + HOSTILE + "{component}.tide"}
    script = tmp_path / ("job" + HOSTILE + ".py")
    script.write_text("pass")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "recorded into" in done.stderr
    _check(done.stderr, "bootstrap")


def test_line_reports_escape_names_and_source(tmp_path: Path) -> None:
    script = tmp_path / ("lines" + HOSTILE + ".py")
    script.write_text(f"@profile\ndef f():\n    a = 1  # {''.join(HOSTILE.split()[:-2])}\nf()\n")
    done = heaptide("lines", script, cwd=tmp_path)
    assert "a = 1" in done.stdout
    _check(done.stdout + done.stderr, "lines")


def test_list_of_running_programs_escapes_their_names(tmp_path: Path) -> None:
    program = start_program(tmp_path, f"'0', name='name' + {HOSTILE!r}")
    done = heaptide("ctl", "list", env={**os.environ, "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run")})
    program.stop()
    assert done.stdout
    _check(done.stdout + done.stderr, "ctl list")


def _on_a_terminal(words: list[str], folder: Path) -> str:
    """Return what a command writes to a terminal."""
    import pty

    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(words, cwd=folder, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    written = b""
    while True:
        try:
            piece = os.read(master, 1 << 16)
        except OSError:  # the process has closed its end
            break
        if not piece:
            break
        written += piece
    os.close(master)
    assert process.wait() == 0
    return written.decode()
