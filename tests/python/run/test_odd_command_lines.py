"""Tests that words and paths that are not UTF-8 reach a recorded program unchanged and are recorded, in any locale.

Python decodes its command line with the encoding of the locale; bytes that this encoding cannot express become lone
surrogates. The same bytes are thus different strings in different locales, and some of them cannot be encoded again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide
from support.run_twice import run_twice, write

UTF8_NAME = "æ".encode()
LATIN1_NAME = "æ".encode("latin-1")
WORDS = [b"plain", UTF8_NAME, LATIN1_NAME, b"\xff\xfe", b"--option=\xe6"]
SHOW = """
    import os, sys
    held = bytes(3_000_000)
    print(ascii([sys.argv, sys.orig_argv[1:], sys.path[0], __file__, os.getcwd(), __name__]))
"""
LOCALES = ("UTF-8", "C", "ISO-8859-1")


@pytest.fixture(scope="session")
def latin1_locale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a locale with the encoding ISO-8859-1 and return the folder to pass in LOCPATH."""
    folder = tmp_path_factory.mktemp("locales")
    localedef = shutil.which("localedef")
    if localedef is None:
        pytest.skip("no localedef: install the locale tools of the C library to run this test")
    words = [localedef, "--no-archive", "-f", "ISO-8859-1", "-i", "de_DE", str(folder / "de_DE.ISO-8859-1")]
    done = subprocess.run(words, capture_output=True, text=True)
    # Without the sources of the encoding, localedef compiles the locale with another encoding.
    if "character map file" in done.stderr or not any(folder.iterdir()):
        pytest.skip(f"no locale de_DE.ISO-8859-1 ({done.stderr.strip()}): install the sources of the locales")
    return folder


@pytest.fixture(params=LOCALES)
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the variables for one locale. UTF-8 mode would override the locale, so it is off in the other two."""
    if request.param == "UTF-8":
        return {"LC_ALL": "C.UTF-8"}
    without_utf8 = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    if request.param == "C":
        return {"LC_ALL": "C", **without_utf8}
    folder = request.getfixturevalue("latin1_locale")
    variables = {"LC_ALL": "de_DE.ISO-8859-1", "LOCPATH": str(folder), **without_utf8}
    code = "import sys; print(sys.getfilesystemencoding())"
    encoding = subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True)
    assert encoding.stdout == b"iso8859-1\n", encoding
    return variables


def make_script(folder: Path, name: bytes) -> bytes:
    """Write a script that prints its command line. Its name is in bytes."""
    script = os.path.join(os.fsencode(folder), name)
    os.makedirs(os.path.dirname(script), exist_ok=True)
    os.rename(write(folder / "script.py", SHOW), script)
    return name


def only_capture(folder: Path) -> Path:
    """Return the only capture in a folder or below it."""
    (capture,) = (path for path in folder.rglob("*") if path.suffix == ".tide")
    return capture


@pytest.mark.parametrize("name", [b"s_\xc3\xa6.py", b"s_\xe6.py", b"d_\xe6/s_\xc3\xa6.py"])
def test_run_passes_words_and_script_names_unchanged(tmp_path: Path, environment: dict[str, str], name: bytes) -> None:
    job = tmp_path / "job"
    make_script(job, name)
    assert run_twice(job, name, *WORDS, env=environment).returncode == 0
    found = json.loads(heaptide("stats", "--json", only_capture(tmp_path)).stdout)
    assert found["metadata"]["command_line"].count("plain") == 1, found["metadata"]


def test_run_accepts_a_working_folder_that_is_not_utf8(tmp_path: Path, environment: dict[str, str]) -> None:
    job = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"cwd_\xe6")))
    make_script(job, b"job.py")
    assert run_twice(job, "job.py", *WORDS, env=environment).returncode == 0
    assert run_twice(job, "-m", "job", *WORDS, env=environment).returncode == 0


RESTART = """
    import os, subprocess, sys
    print(sys.orig_argv[1:], sys.argv, flush=True)
    if os.environ.setdefault("RESTARTED", "no") == "no":
        os.environ["RESTARTED"] = "yes"
        if "--exec" in sys.argv:
            os.execv(sys.executable, sys.orig_argv)
        sys.exit(subprocess.call([sys.executable, *sys.orig_argv[1:]]))
"""


@pytest.mark.parametrize("method", ["--exec", "--subprocess"])
def test_program_that_restarts_itself_by_its_original_arguments_runs_again(tmp_path: Path, method: str) -> None:
    job = tmp_path / "job"
    job.mkdir()
    write(job / "job.py", RESTART)
    for words in (["job.py"], ["-m", "job"], ["-c", (job / "job.py").read_text()]):
        done = run_twice(job, *words, method, "b c", flags=["-X", "dev", "-u"])
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)


@pytest.mark.parametrize("letter", [UTF8_NAME, LATIN1_NAME])
def test_run_decodes_code_and_module_names_as_python_does(
    tmp_path: Path, environment: dict[str, str], letter: bytes
) -> None:
    # Python cannot decode some of these, and reports that itself.
    code = b"import sys; print(ascii(sys.argv), ascii('" + letter + b"'))"
    run_twice(tmp_path, "-c", code, *WORDS, env=environment, records=False)
    run_twice(tmp_path, b"-c" + code, *WORDS, env=environment, records=False)
    make_script(tmp_path, b"m_" + letter + b".py")
    run_twice(tmp_path, "-m", b"m_" + letter, *WORDS, env=environment, records=False)


def test_environment_records_programs_whose_words_and_folder_are_not_utf8(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"cwd_\xe6")
    make_script(Path(os.fsdecode(folder)), b"s_\xe6.py")
    outcomes = []
    for added in ({}, {"HEAPTIDE": "run", "HEAPTIDE_QUIET": "1"}):
        variables = {**os.environ, **environment, **added}
        command = [sys.executable, b"s_\xe6.py", *WORDS]
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True)
        outcomes.append((done.returncode, done.stdout, done.stderr))
    assert outcomes[1] == outcomes[0] and outcomes[0][0] == 0
    capture = os.path.join(folder, os.fsencode(only_capture(tmp_path).name))
    done = subprocess.run([sys.executable, "-m", "heaptide", "parse", capture], capture_output=True, check=True)
    assert b" size=%d " % (3_000_000 + sys.getsizeof(b"")) in done.stdout


@pytest.mark.once
def test_children_join_a_session_whose_path_is_not_utf8(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"cwd_\xe6")
    os.mkdir(folder)
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'held = bytes(3_000_000)'], check=True)"
    variables = {**os.environ, **environment, "HEAPTIDE": "run", "HEAPTIDE_OUT": "j.tide", "HEAPTIDE_QUIET": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=variables, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(name.rstrip(b"0123456789") for name in os.listdir(folder)) == [b"j.tide", b"j.tide."]


@pytest.mark.once
@pytest.mark.parametrize(
    "words", [["lines"], ["heap", "take"], ["record", "-q", "--"], ["run", "-q", "--live-remote=0"]]
)
def test_every_command_that_runs_a_script_passes_words_unchanged(
    tmp_path: Path, environment: dict[str, str], words: list[str]
) -> None:
    program = """
        import builtins, sys
        @getattr(builtins, "profile", lambda function: function)
        def work():
            return [0] * 100
        work()
        sys.stderr.write(ascii([sys.argv, __name__]) + "\\n")
    """
    script = os.path.join(os.fsencode(tmp_path), b"s_\xe6.py")
    os.rename(write(tmp_path / "script.py", program), script)
    outcomes = []
    for prefix in ([], ["-m", "heaptide", *words]):
        command = [sys.executable, *prefix, b"s_\xe6.py", *WORDS]
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True)
        lines = [line for line in done.stderr.splitlines() if not line.startswith(b"heaptide: ")]
        outcomes.append((done.returncode, lines))
        assert b"could not" not in done.stderr and b"without being recorded" not in done.stderr, done.stderr
    assert outcomes[0] == outcomes[1] and outcomes[0][0] == 0 and len(outcomes[0][1]) == 1
