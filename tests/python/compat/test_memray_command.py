"""Tests memray's command under its own name: file names, messages, exit codes, and the callers that run it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.attached_process import ask, attach, blocked, detach, end, n_asked, output, running
from support.commands import heaptide
from support.controlled_program import page_data
from support.waiting import wait_until

pytestmark = pytest.mark.once

JOB = "import sys\nheld = [bytearray(1_000_000) for _ in range(4)]\nprint('done', *sys.argv[1:])\n"


def environment() -> dict[str, str]:
    """Return an environment in which the name memray means Heaptide."""
    return {**os.environ, "HEAPTIDE_COMPAT": "memray", "HEAPTIDE_CONFIG": "off"}


def memray(*words: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run ``python -m memray``."""
    command = [sys.executable, "-m", "memray", *map(str, words)]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script in a subfolder."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.py").write_text(JOB)
    return tmp_path


def test_files_have_memrays_names(folder: Path) -> None:
    done = memray("run", "jobs/job.py", "a", "-o", "b", cwd=folder)
    (capture,) = (folder / "jobs").glob("memray-job.py.*.bin")
    assert done.stdout.startswith(f"Writing profile results into jobs/{capture.name}\ndone a -o b\n[memray] Success")
    stem = capture.stem.removeprefix("memray-")
    for words, name in (
        (["flamegraph", "--temporal", "--leaks"], f"memray-flamegraph-{stem}.html"),
        (["table", "--split-threads", "--no-web"], f"memray-table-{stem}.html"),
        (["stats", "--json"], f"memray-stats-{stem}.bin.json"),
        (["transform", "csv"], f"memray-csv-{stem}.csv"),
        (["transform", "speedscope"], f"memray-speedscope-{stem}.speedscope.json"),
    ):
        assert memray(*words, capture, cwd=folder).stdout == f"Wrote {folder}/jobs/{name}\n"
        assert (folder / "jobs" / name).stat().st_size > 100
        done = memray(*words, capture, cwd=folder, code=1)
        assert done.stderr == f"File already exists, will not overwrite without --force: {folder}/jobs/{name}\n"
        memray(*words, "--force", capture, cwd=folder)
    statistics = json.loads((folder / "jobs" / f"memray-stats-{stem}.bin.json").read_text())
    assert statistics["metadata"]["peak_memory"] > 4_000_000
    memray("run", "-q", "-c", "pass", cwd=folder)
    memray("run", "-q", "-m", "json.tool", "--help", cwd=folder)
    names = {path.name.rsplit(".", 2)[0] for path in folder.glob("memray-*.bin")}
    assert names == {"memray-string", "memray-json.tool"}


def test_messages_and_exit_codes_are_memrays(folder: Path) -> None:
    (folder / "junk.bin").write_text("junk")
    (folder / "bad.py").write_text("if")
    for words, code, message in (
        (["run", "nofile.py"], 1, "[Errno 2] No such file or directory: 'nofile.py'"),
        (["run", "bad.py"], 1, "Only valid Python files or commands can be executed under memray"),
        (["run", "-m", "no_such_module"], 1, "memray: No module named no_such_module"),
        (["run", "-m", "no_such.module"], 1, "memray: Error while finding module specification for 'no_such.module'"),
        (["run", "-m", ".relative"], 1, "memray: Relative module names not supported"),
        (["run", "-o", "missing/x.bin", "jobs/job.py"], 1, "Could not create output file missing/x.bin"),
        (["run", "-o", "", "jobs/job.py"], 1, "Could not create output file : No such file or directory"),
        (["run", "-f", "-o", "jobs", "jobs/job.py"], 1, "Could not create output file jobs: Is a directory"),
        (["run", "-o", "junk.bin", "jobs/job.py"], 1, "Output file junk.bin already exists."),
        (["run", "--live-port", "5000", "jobs/job.py"], 2, "The --live-port argument requires --live-remote"),
        (["run", "--live", "--follow-fork", "jobs/job.py"], 2, "--follow-fork cannot be used with the live TUI"),
        (["flamegraph", "nofile.bin"], 1, "No such file: nofile.bin"),
        (["flamegraph", "junk.bin"], 1, "Failed to parse allocation records in junk.bin\nReason: "),
        (["stats", "junk.bin"], 1, "Failed to compute statistics for junk.bin\nReason: "),
        (["parse", "junk.bin"], 1, "Failed to parse allocation records in junk.bin\nReason: "),
        (["parse", "no.bin"], 1, "Failed to parse allocation records in no.bin\nReason: No such file: no.bin"),
        (["table", "-o", "missing/x.html", "junk.bin"], 1, "[Errno 2] No such file or directory: 'missing/x.html'"),
        (["table", "-f", "-o", "jobs", "junk.bin"], 1, "[Errno 21] Is a directory: 'jobs'"),
        (["transform", "nothing", "junk.bin"], 1, "Format not supported: nothing"),
        (["flamegraph", "--temporal", "--temporary-allocations", "junk.bin"], 2, "Can't create a temporal flame graph"),
        (["summary", "-s", "6", "junk.bin"], 2, "--sort-column argument must be between 1 and 5"),
        (["live", "70000"], 1, "Invalid port: 70000"),
        (["attach", "--aggregate", "1"], 2, "Can't use aggregated mode without an output file."),
        (["stats", "-n", "0", "junk.bin"], 2, "0 is an invalid positive int value"),
        ([], 2, "usage: memray"),
    ):
        assert message in memray(*words, cwd=folder, code=code).stderr, words
    assert memray("--version", cwd=folder).stdout == "1.20.0\n"
    memray("run", "-q", "-c", "import sys; sys.exit(7)", cwd=folder, code=7)


def test_options_may_be_abbreviated_only_under_memrays_name(folder: Path) -> None:
    memray("-v", "run", "--outp", "a.bin", "--no-comp", "--buffered-file-io", "--trace", "jobs/job.py", cwd=folder)
    memray("flamegraph", "--inv", "--no-web", "--max-memory-records", "5", "--outp", "a.html", "a.bin", cwd=folder)
    for words in (["run", "--outp", "b.tide", "jobs/job.py"], ["flamegraph", "--inv", "a.bin"]):
        assert heaptide(*words, cwd=folder, check=False).returncode == 2
    heaptide(*["-v", "run", "-q", "-o", "b.tide", "--no-compress", "--buffered-file-io", "jobs/job.py"], cwd=folder)
    options = "--temporal --no-web --max-memory-records 5 --confidential-files default"
    heaptide("flamegraph", *options.split(), "-o", "b.html", "b.tide", cwd=folder)
    heaptide("table", "--split-threads", "--no-web", "-o", "t.html", "b.tide", cwd=folder)


def test_confidential_files_decide_whether_source_is_in_a_page(folder: Path) -> None:
    memray("run", "-q", "-o", "a.bin", "jobs/job.py", cwd=folder)
    for setting, has_source in (("all", False), ("none", True), ("default", True)):
        memray("flamegraph", "-f", "-o", "a.html", "--confidential-files", setting, "a.bin", cwd=folder)
        assert ("range(4)]" in page_data((folder / "a.html").read_text())) == has_source, setting


def installed(folder: Path, name: str = "memray") -> Path:
    """Install a command into a folder and return its path."""
    heaptide("compat", "install", name, "--to", folder)
    return folder / name


def test_missing_folder_of_commands_is_created_for_all_users(folder: Path) -> None:
    bin = folder / "tools" / "bin"
    umask = os.umask(0o077)
    try:
        printed = heaptide("compat", "install", "memray,mprof", "--to", bin).stdout
    finally:
        os.umask(umask)
    assert stat.S_IMODE(bin.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in bin.iterdir()} == {0o755}
    assert all(str(path) in printed for path in (bin, bin / "memray", bin / "mprof"))
    missing = heaptide("compat", "remove", "mprof", "--to", folder / "missing", check=False)
    assert missing.returncode == 1 and not (folder / "missing").exists()


def test_installed_command_is_found_by_platforms_and_removed(folder: Path) -> None:
    bin = folder / "bin"
    command = installed(bin)
    assert os.access(command, os.X_OK)
    path = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "HEAPTIDE_CONFIG": "off"}
    (folder / "uses.py").write_text("import memray\nprint(memray.Tracker.__module__)\n")
    done = subprocess.run(
        ["memray", "run", "-q", "-o", "x.bin", "uses.py"], cwd=folder, env=path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "heaptide" in done.stdout, done
    heaptide("compat", "install", "memray,mprof", "--to", bin)
    (bin / "mprof").write_text("another")
    done = heaptide("compat", "install", "mprof", "--to", bin, check=False)
    assert done.returncode == 1 and "is not Heaptide's" in done.stderr
    assert heaptide("compat", "remove", "mprof", "--to", bin, check=False).returncode == 1
    heaptide("compat", "remove", "memray", "--to", bin)
    assert [path.name for path in bin.iterdir()] == ["mprof"]


def test_command_lines_of_ray_and_of_kubernetes_profilers_work(folder: Path) -> None:
    command = str(installed(folder))

    def run(*words: str | Path) -> None:
        done = subprocess.run([command, *map(str, words)], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    with blocked() as process:
        capture = folder / "profile.bin"
        run("attach", process.pid, "-o", capture, "--native", "--trace-python-allocators", "--verbose")
        ask(process, 5)
        run("detach", "--verbose", process.pid)
        for report in ("flamegraph", "table"):
            run(report, "-o", folder / f"{report}.html", "-f", "--leaks", capture)
            run(report, "-o", folder / f"{report}.html", "-f", capture)
        assert n_asked(capture) >= 1
        timed = folder / "timed.bin"
        run("attach", "--aggregate", "--verbose", "-o", timed, "--duration", "1", process.pid)
        # The command returns at once, as memray's does, and the recording ends after its time.
        wait_until(lambda: "TRAILER time=unknown" not in heaptide("parse", timed).stdout[-200:], "end of the recording")
        end(process)


def test_memray_need_not_be_installed(folder: Path) -> None:
    import heaptide as package

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    installed_at = Path(package.__file__).parent
    (site / "heaptide").symlink_to(installed_at)
    (site / "heaptide.pth").write_bytes((installed_at.parent / "heaptide.pth").read_bytes())
    program = """
import importlib.metadata, memray, sys
from memray.commands import main
from memray._memray import compute_statistics
try:
    importlib.metadata.version("memray")
except importlib.metadata.PackageNotFoundError:
    print("absent", memray.__version__)
with memray.Tracker("x.bin"):
    held = bytearray(4_000_000)
print(compute_statistics("x.bin").top_locations_by_size[0][1])
sys.exit(main(["table", "x.bin"]))
"""
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [folder / "env" / "bin" / "python", "program.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "absent 1.20.0\n4000001\nWrote memray-table-x.html\n"


FORKING = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
pid = os.fork()
held = bytearray(7_000_000 if pid == 0 else 1_000_000)
if pid:
    os.waitpid(pid, 0)
    print(pid, flush=True)
    sys.stdin.readline()
"""


def test_forked_children_of_an_attached_process_are_recorded(folder: Path) -> None:
    (folder / "forking.py").write_text(FORKING)
    with running(sys.executable, folder / "forking.py") as process:
        assert process.stdin is not None and output(process).readline() == "ready\n"
        attach(process, "--follow-fork", "-q", "-o", folder / "forks.bin")
        process.stdin.write("\n")
        process.stdin.flush()
        child = int(output(process).readline())
        detach(process)
        process.communicate("\n")
        assert process.returncode == 0
    peaks = {
        name: json.loads(heaptide("stats", "--json", folder / name).stdout)["metadata"]["peak_memory"]
        for name in ("forks.bin", f"forks.bin.{child}")
    }
    assert peaks["forks.bin"] < 5_000_000 < peaks[f"forks.bin.{child}"]


def test_live_remote_waits_for_a_viewer_and_live_shows_the_program(folder: Path) -> None:
    program = "import sys\ndef hold():\n    return bytearray(8_000_000)\nheld = hold()\nsys.stdin.read()\n"
    (folder / "held.py").write_text(program)
    command = [sys.executable, "-m", "memray", "run", "--live-remote", "held.py"]
    with running(*command, cwd=folder, env=environment()) as process:
        line = output(process).readline()
        port = line.split(" live ")[1].split("'")[0]
        assert line == f"Run '{sys.executable} -m memray live {port}' in another shell to see live results\n"
        shown = memray("live", port, cwd=folder).stdout
        assert f"process {process.pid}" in shown
        assert process.communicate()[0] == "" and process.returncode == 0


def test_live_waits_for_a_program_that_starts_later(folder: Path) -> None:
    (folder / "held.py").write_text("import sys\nheld = bytearray(8_000_000)\nsys.stdin.read()\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with running(sys.executable, "-m", "memray", "live", port, cwd=folder, env=environment()) as view:
        command = [sys.executable, "-m", "memray", "run", "--live-remote", "--live-port", port, "held.py"]
        with running(*command, cwd=folder, env=environment()) as process:
            assert f"process {process.pid}" in output(view).read()
            process.communicate()
        assert view.wait() == process.returncode == 0


def test_interrupt_ends_a_view_that_waits(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    # Prints the length of each wait between two attempts to connect, and waits for a minute instead.
    code = (
        "import sys, time\n"
        "def wait(seconds, sleep=time.sleep):\n    print(seconds, flush=True)\n    sleep(60)\n"
        "time.sleep = wait\nfrom memray.commands import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    with running(sys.executable, "-c", code, "live", port, cwd=folder, env=environment()) as view:
        assert output(view).readline() == "0.1\n"
        view.send_signal(signal.SIGINT)
        assert view.wait() == 0


def test_existing_capture_is_refused_in_memrays_words(folder: Path) -> None:
    (folder / "out.bin").write_text("kept")
    done = memray("run", "-o", "out.bin", "jobs/job.py", cwd=folder, code=1)
    assert "Output file out.bin already exists. Memray can overwrite it with the --force CLI argument" in done.stderr
    assert (folder / "out.bin").read_text() == "kept"


def test_closed_output_keeps_the_exit_code_of_the_program(folder: Path) -> None:
    (folder / "job.py").write_text("import sys; sys.stdin.read(); sys.exit(3)")
    command = [sys.executable, "-m", "memray", "run", "-o", "out.bin", "job.py"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == ""
    assert process.returncode == 3


def test_attaching_to_a_missing_process_names_the_reason(folder: Path) -> None:
    for words in (["attach", "4194305"], ["attach", "-o", "out.bin", "4194305"], ["detach", "4194305"]):
        assert "The given process ID does not exist." in memray(*words, cwd=folder, code=1).stderr


def test_temporary_allocations_of_an_aggregated_capture_are_refused(folder: Path) -> None:
    memray("run", "-q", "--aggregate", "-o", "out.bin", "jobs/job.py", cwd=folder)
    for words in (["flamegraph"], ["table"], ["summary"], ["tree"], ["transform", "csv"]):
        done = memray(*words, "--temporary-allocations", "out.bin", cwd=folder, code=1)
        assert "was recorded with --aggregate" in done.stderr
    memray("table", "--leaks", "out.bin", cwd=folder)


def test_module_that_is_not_found_leaves_a_capture_as_in_memray(folder: Path) -> None:
    done = memray("run", "-m", "no_such_module", cwd=folder, code=1)
    (capture,) = folder.glob("memray-no_such_module.*.bin")
    assert done.stdout == f"Writing profile results into {capture.name}\n"


def test_packages_of_a_module_are_imported_while_recording(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("print('imported'); held = bytearray(30_000_000)")
    (folder / "package" / "module.py").write_text("")
    done = memray("run", "-q", "-o", "out.bin", "-m", "package.module", cwd=folder)
    assert done.stdout == "imported\n"
    memray("stats", "--json", "-o", "out.json", "out.bin", cwd=folder)
    assert json.loads((folder / "out.json").read_text())["metadata"]["peak_memory"] > 30_000_000


def test_null_device_is_accepted_as_capture(folder: Path) -> None:
    (folder / "exits.py").write_text("import sys; print(__name__, sys.argv); sys.exit(3)")
    for words, code, text in (
        (["exits.py", "a"], 3, "__main__ ['exits.py', 'a']\n"),
        (["-f", "exits.py"], 3, "__main__ ['exits.py']\n"),
        (["-m", "exits"], 3, f"__main__ ['{folder}/exits.py']\n"),
        (["-c", "print(__name__)"], 0, "__main__\n"),
    ):
        assert memray("run", "-q", "-o", os.devnull, *words, cwd=folder, code=code).stdout == text
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_report_on_a_full_disk_names_the_reason_without_a_traceback(folder: Path) -> None:
    memray("run", "-q", "-o", "out.bin", "jobs/job.py", cwd=folder)
    for command in ("stats", "summary", "tree", "parse"):
        words = [sys.executable, "-u", "-m", "memray", command, "out.bin"]
        with open("/dev/full", "w") as full:
            done = subprocess.run(words, cwd=folder, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
