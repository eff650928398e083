"""Tests that commands written for mprof run unchanged on Heaptide, and that both print the same lines."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.timeline_files import parse_peaks

pytestmark = pytest.mark.once

pytest.importorskip("memory_profiler", reason="memory_profiler has no wheel for this interpreter")

RECORDED = """CMDLINE python job.py
MEM 10.000000 100.0000
CHLD 12 5.000000 100.1000
MEM 95.500000 101.0000
CHLD 12 6.500000 101.1000
FUNC __main__.work 10.0000 100.5000 90.0000 101.5000 0
"""
# Prints its interpreter options and exits with 3.
PROGRAM = """
import sys
block = bytearray(32 << 20)
print(sys.flags.optimize, sys.orig_argv[1:], flush=True)
sys.exit(3)
"""
FUNCTIONS = """
@profile
def work():
    return bytearray(8 << 20)

@profile()
def other():
    with profile.timestamp("load rows"):
        pass

work()
other()
print("done")
"""


def mprof(
    folder: Path, *words: str | Path, compat: str = "mprof", flags: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m mprof``; without `compat` the real one."""
    environment = {**os.environ, **variables, **({"HEAPTIDE_COMPAT": compat} if compat else {})}
    command = [sys.executable, *flags, "-m", "mprof", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "peak",
        "list --unknown",
        "peak 0",
        "peak 0 0",
        "peak -2",
        "peak mprofile_20260102030405_ts.dat",
        "peak -1 0 mprofile_20260102030405.dat",
        "peak missing.dat",
        "peak missing.dat 1",
        "peak --func __main__.work 0",
        "peak --func unknown 0",
        "rm",
        "rm --dry-run -1",
        "rm --dry-run 0 1 0",
        "rm 0",
        "rm 0 0 -1",
        "rm -- -1",
        "rm --dry 0",
        "rm --version",
        "rm empty.dat",
        "clean --version",
        "clean --dry-run",
        "clean",
        "list --version",
        "run --version",
        "plot --version",
        "plot missing.dat",
        "plot empty.dat",
        "run",
        "run --interval x true",
        "run --backend unknown true",
        "attach",
        "attach --version",
    ],
)
def test_commands_print_the_same_lines_as_mprof(tmp_path: Path, words: str) -> None:
    results = []
    for compat in ("", "memory_profiler"):
        folder = tmp_path / (compat or "real")
        folder.mkdir()
        for name in ("mprofile_20260102030405.dat", "mprofile_20260102030406.dat", "mprofile_20260102030405_ts.dat"):
            (folder / name).write_text(RECORDED)
        (folder / "empty.dat").write_text("CMDLINE nothing\n")
        done = mprof(folder, *words.split(), compat=compat)
        if "matplotlib is needed" in done.stdout:
            pytest.skip("matplotlib has no wheel for this interpreter")
        results.append((done.stdout, done.returncode, sorted(os.listdir(folder))))
    assert results[0] == results[1]


@pytest.mark.parametrize("words", ["list", "rm 5", "peak", "plot"])
def test_empty_folder_gives_the_same_exit_code_as_mprof(tmp_path: Path, words: str) -> None:
    real, replacement = (mprof(tmp_path, *words.split(), compat=compat) for compat in ("", "mprof"))
    if "matplotlib is needed" in real.stdout:
        pytest.skip("matplotlib has no wheel for this interpreter")
    assert (replacement.stdout, replacement.returncode) == (real.stdout, real.returncode)
    assert "Traceback" not in replacement.stderr


@pytest.mark.parametrize("words", ["rm --unknown 0", "peak --unknown"])
def test_unknown_options_give_the_same_message_as_mprof(tmp_path: Path, words: str) -> None:
    real, replacement = (mprof(tmp_path, *words.split(), compat=compat) for compat in ("", "mprof"))
    assert (replacement.stderr, replacement.returncode) == (real.stderr, real.returncode)


@pytest.mark.parametrize("command", ["run", "attach", "list", "rm", "clean", "plot", "peak", "", "memory_profiler"])
def test_help_lists_the_same_commands_and_options_as_mprof(tmp_path: Path, command: str) -> None:
    def names(compat: str) -> list[tuple[str, str]]:
        environment = {**os.environ, "COLUMNS": "200", **({"HEAPTIDE_COMPAT": compat} if compat else {})}
        words = [command, "-h"] if command == "memory_profiler" else ["mprof", *command.split(), "-h"]
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        # Options at the begin of a line, with their values, or the commands of the usage. Their help is Heaptide's own.
        return sorted(re.findall(r"^(?:  (-.*?)(?:  .*)?|    ([a-z]+) +[a-z].*)$", done.stdout, flags=re.MULTILINE))

    assert names("mprof,memory_profiler") == names("") != []


@pytest.mark.parametrize("options", [[], ["-M", "-C"], ["--python"], ["--nopython"]])
def test_run_prints_the_same_lines_as_mprof_and_writes_a_file_it_reads(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "job.py").write_text(f"#!{sys.executable}\nprint('hello', flush=True)\nblock = bytearray(32 << 20)\n")
    (tmp_path / "job.py").chmod(0o755)
    program = "./job.py"
    real, replacement = (
        mprof(tmp_path, "run", "-T", "0.01", "-o", f"{compat or 'real'}.dat", *options, program, compat=compat)
        for compat in ("", "mprof")
    )
    assert sorted(replacement.stdout.splitlines()) == sorted(real.stdout.splitlines())
    assert (replacement.returncode, real.returncode) == (0, 0), replacement.stderr + real.stderr
    read_by_mprof = mprof(tmp_path, "peak", "mprof.dat", compat="").stdout
    assert read_by_mprof == mprof(tmp_path, "peak", "mprof.dat").stdout
    assert parse_peaks(read_by_mprof)[0] > 5
    commands = [Path(tmp_path, name).read_text().split("\n")[0] for name in ("real.dat", "mprof.dat")]
    assert any(line == commands[1] for line in Path(tmp_path, "real.dat").read_text().splitlines()), commands


@pytest.mark.parametrize("compat", ["memory_profiler", "mprof"])
def test_exit_code_and_interpreter_options_reach_the_program(tmp_path: Path, compat: str) -> None:
    (tmp_path / "launch.py").write_text(PROGRAM)
    words = ["run", "--multiprocess", "--include-children", "--output", "HOST.dat", "launch.py", "task", "-1"]
    done = mprof(tmp_path, *words, compat=compat, flags=("-u", "-O"))
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1] == "1 ['-u', '-O', 'launch.py', 'task', '-1']"
    assert done.stderr == ""
    assert (tmp_path / "HOST.dat").read_text().startswith(f"CMDLINE {sys.executable} -u -O launch.py task -1\n")


def test_exit_code_option_reports_the_failure_as_mprof_does(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("raise SystemExit(4)")
    real, replacement = (mprof(tmp_path, "run", "-E", "job.py", compat=compat) for compat in ("", "mprof"))
    assert (replacement.returncode, replacement.stderr) == (real.returncode, real.stderr.replace("__main__", "mprof"))
    assert "non-zero exit code: 4" in replacement.stderr


def test_signal_that_kills_the_program_kills_mprof(tmp_path: Path) -> None:
    done = mprof(tmp_path, "run", "sh", "-c", "kill -KILL $$")
    assert done.returncode == -signal.SIGKILL


def test_signal_to_mprof_reaches_the_program(tmp_path: Path) -> None:
    program = "import signal, time\ntry:\n print('ready', flush=True)\n time.sleep(60)\nexcept KeyboardInterrupt:\n raise SystemExit(9)\n"
    (tmp_path / "job.py").write_text(
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + program
    )
    command = [sys.executable, "-u", "-m", "mprof", "run", "-M", "job.py"]
    environment = {**os.environ, "HEAPTIDE_COMPAT": "mprof"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        while "ready" not in started.stdout.readline():
            pass
        started.send_signal(signal.SIGINT)
        assert started.wait() == 9


def test_each_run_writes_a_new_file_and_keeps_the_earlier_one(tmp_path: Path) -> None:
    for text in ("first", "second"):
        mprof(tmp_path, "run", "-o", "node.dat", "echo", text)
    assert "CMDLINE echo second\n" in (tmp_path / "node.dat").read_text()
    (earlier,) = tmp_path.glob("node.2*.dat")
    assert "CMDLINE echo first\n" in earlier.read_text()


def test_ranks_of_one_host_write_separate_files(tmp_path: Path) -> None:
    for rank in "01":
        variables = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        mprof(tmp_path, "run", "-M", "-o", "node.dat", "echo", rank, **variables)
    assert sorted(os.listdir(tmp_path)) == ["node-rank0.dat", "node-rank1.dat"]


@pytest.mark.parametrize("words", [["functions.py"], ["--python", "functions"], ["-C", "functions.py"]])
def test_decorated_functions_are_in_the_file_under_the_same_names(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    names = []
    for compat in ("", "mprof"):
        done = mprof(tmp_path, "run", "-o", f"{compat or 'real'}.dat", *words, compat=compat)
        assert "done\n" in done.stdout, done.stderr
        lines = Path(tmp_path, f"{compat or 'real'}.dat").read_text().splitlines()
        names.append(sorted((line.split()[1], line.split()[-1]) for line in lines if line.startswith("FUNC __main__")))
    assert names[0] == names[1] == [("__main__.other", "0"), ("__main__.work", "0")]


def test_module_offers_mprofs_functions(tmp_path: Path) -> None:
    (tmp_path / "mprofile_20260102030405.dat").write_text(RECORDED)
    code = (
        "import json, mprof; read = mprof.read_mprofile_file('mprofile_20260102030405.dat')\n"
        "print(json.dumps(read, sort_keys=True), mprof.get_profile_filenames('all'), mprof.get_cmd_line(['a b', 'c']))\n"
        "print(sorted(mprof.function_labels(['a.f', 'b.f', 'c.g']).items()))\n"
        "print(mprof.filter_mprofile_mem_usage_by_function(read, '__main__.work'))\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for variables in ({}, {"HEAPTIDE_COMPAT": "memory_profiler"})
    ]
    assert outputs[0] == outputs[1]


def test_attach_records_a_running_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        done = mprof(tmp_path, "attach", "-t", "1", "-o", "attached.dat", str(sleeping.pid))
        sleeping.kill()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == f"attaching to existing process, using hint: {sleeping.pid}"
    assert (tmp_path / "attached.dat").read_text().startswith("CMDLINE sleep 60\n")


def test_installed_command_calls_itself_mprof(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "heaptide", "compat", "install", "mprof", "--to", tmp_path]
    subprocess.run(install, check=True, capture_output=True)
    done = subprocess.run(
        [tmp_path / "mprof", "run", "-o", "x.dat", "true"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.startswith("mprof: Sampling memory every 0.1s"), done.stdout + done.stderr
