"""Tests that no data of a program, however odd, lets an exception of Heaptide reach the program's own calls."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.commands import heaptide

# Only a program that hangs reaches this limit.
LIMIT_SECONDS = 120
WAYS = ("run", "environment")


def recorded(folder: Path, program: str, way: str = "run", *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program bare and recorded by `heaptide run` or by the environment. Both must print and exit the same."""
    script = folder / "job.py"
    script.write_text(textwrap.dedent(program), encoding="utf-8")
    capture = str(folder / "job.tide")
    words = ["-m", "heaptide", "run", "-q", "-f", "-o", capture, *options] if way == "run" else []
    added = {} if way == "run" else {"HEAPTIDE": "run", "HEAPTIDE_QUIET": "1", "HEAPTIDE_OUT": capture}
    outcomes = [
        subprocess.run(
            [sys.executable, *prefix, str(script)],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        for prefix, variables in (([], {}), (words, added))
    ]
    bare, done = outcomes
    assert (done.returncode, done.stdout, done.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    assert (folder / "job.tide").exists()
    return done


@pytest.mark.parametrize("way", WAYS)
def test_thread_with_a_name_that_cannot_be_encoded_starts(tmp_path: Path, way: str) -> None:
    program = """
        import threading
        held = []
        def work():
            held.append(bytes(3_000_000))
            print("ran")
        for name in ("\\udce6", "a\\ud800b", "\\0", "", "x" * 3000, "\\x1b[31m", "名前"):
            thread = threading.Thread(target=work, name=name)
            thread.start()
            thread.join()
        print("done", threading.active_count())
    """
    assert recorded(tmp_path, program, way).stdout == "ran\n" * 7 + "done 1\n"
    names = heaptide("parse", tmp_path / "job.tide").stdout
    assert "\N{REPLACEMENT CHARACTER}" in names and "a\N{REPLACEMENT CHARACTER}b" in names and "名前" in names


@pytest.mark.parametrize("way", WAYS)
def test_thread_renamed_to_a_name_that_cannot_be_encoded_runs_and_ends(tmp_path: Path, way: str) -> None:
    program = """
        import threading
        renamed, last = threading.Event(), threading.Event()
        def work():
            renamed.wait()
            print(ascii(threading.current_thread().name))
        thread = threading.Thread(target=work)
        thread.start()
        thread.name = "later \\udce6"
        renamed.set()
        thread.join()
        # Still alive when the recording stops.
        threading.Thread(target=last.wait, name="daemon", daemon=True).start()
        [daemon] = [each for each in threading.enumerate() if each.daemon]
        daemon.name = "\\udcff"
        threading.current_thread().name = "main \\udce6"
    """
    assert recorded(tmp_path, program, way).stdout == "'later \\udce6'\n"
    assert "main \N{REPLACEMENT CHARACTER}" in heaptide("parse", tmp_path / "job.tide").stdout


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="from 3.14 on, Python requires a thread's name to be a string")
@pytest.mark.parametrize("way", WAYS)
def test_thread_whose_name_is_not_a_string_starts(tmp_path: Path, way: str) -> None:
    program = """
        import threading
        class Odd:
            def __str__(self):
                raise KeyError("no text")
        for name in (5, None, b"bytes", Odd()):
            thread = threading.Thread(target=print, args=("ran",))
            thread._name = name
            thread.start()
            thread.join()
        print("done")
    """
    assert recorded(tmp_path, program, way).stdout == "ran\n" * 4 + "done\n"


@pytest.mark.once
def test_thread_class_of_the_program_may_fail_when_its_name_is_read(tmp_path: Path) -> None:
    program = """
        import threading
        class Nameless(threading.Thread):
            @property
            def name(self):
                raise LookupError("no name")
        thread = Nameless(target=print, args=("ran",))
        thread.start()
        thread.join()
    """
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(program))
    done = heaptide("run", "-q", "-o", tmp_path / "job.tide", script, cwd=tmp_path, timeout=LIMIT_SECONDS)
    assert (done.stdout, done.stderr) == ("ran\n", "heaptide: no name; the program continues\n")


@pytest.mark.once
def test_recording_starts_whatever_the_program_has_put_into_sys_argv(tmp_path: Path) -> None:
    program = """
        import sys
        import heaptide
        for number, words in enumerate(([], ["\\udce6", 5, b"x", None], None)):
            sys.argv = words
            with heaptide.Tracker(f"{number}.tide"):
                pass
            heaptide.heap_snapshot(f"{number}.heap")
        del sys.argv
        with heaptide.Tracker("3.tide"):
            pass
        heaptide.heap_snapshot("3.heap")
        print("done")
    """
    assert recorded_alone(tmp_path, program) == ("done\n", "")
    heaptide("stats", tmp_path / "1.tide")
    heaptide("heap", "types", tmp_path / "1.heap")


@pytest.mark.once
def test_failures_are_reported_even_if_the_program_replaced_standard_error(tmp_path: Path) -> None:
    program = """
        import sys
        from heaptide.containment import contained

        class Broken:
            def write(self, text):
                raise KeyError(text)

        class Unspeakable(Exception):
            def __str__(self):
                raise RuntimeError

        @contained
        def fail(error):
            raise error

        assert fail(ValueError("first")) is None
        assert fail(Unspeakable()) is None
        sys.stderr = Broken()
        assert fail(ValueError("second")) is None
        sys.stderr = None
        assert fail(ValueError("third")) is None
        for error in (KeyboardInterrupt, SystemExit):
            try:
                fail(error())
            except error:
                continue
            raise AssertionError(f"{error.__name__} did not reach the program")
        print("done")
    """
    assert recorded_alone(tmp_path, program) == ("done\n", "heaptide: first; the program continues\n")


@pytest.mark.once
def test_thread_that_refuses_attributes_starts_within_a_job(tmp_path: Path) -> None:
    program = """
        import threading
        from heaptide.leaks import JobTracer

        class Strict(threading.Thread):
            def __setattr__(self, name, value):
                if name in ("_bootstrap_inner", "_context") and hasattr(self, "_started"):
                    raise AttributeError(f"{name} is not an attribute of the program")
                super().__setattr__(name, value)

        with JobTracer() as tracer, tracer.job("odd \\udce6"):
            thread = Strict(target=print, args=("ran",))
            thread.start()
            thread.join()
        print("done")
    """
    stdout, stderr = recorded_alone(tmp_path, program)
    assert stdout == "ran\ndone\n" and "Traceback" not in stderr


@pytest.mark.once
def test_traced_function_returns_its_result_though_it_cannot_be_measured(tmp_path: Path) -> None:
    program = """
        from heaptide.leaks import JobTracer, accounts
        tracer = JobTracer()

        @tracer.traced
        def work():
            accounts.close_accounts()
            return "result"

        @tracer.traced
        def unmeasurable():
            return "other result"

        print(work())
        tracer.before = None
        print(unmeasurable())
    """
    stdout, stderr = recorded_alone(tmp_path, program)
    assert stdout == "result\nother result\n"
    lines = stderr.splitlines()
    assert len(lines) == 2 and all(line.endswith("; the program continues") for line in lines), stderr


@pytest.mark.skipif(sys.version_info < (3, 12), reason="3.12 brought sys.monitoring")
def test_function_with_line_report_runs_if_all_monitoring_tools_are_taken(tmp_path: Path) -> None:
    program = """
        import sys
        import heaptide
        for number in range(6):
            sys.monitoring.use_tool_id(number, f"other {number}")

        @heaptide.profile
        def work():
            return "result"

        result = work()
        print(result == "result")
    """
    stdout, stderr = recorded_alone(tmp_path, program)
    assert stdout.endswith("True\n")
    assert stderr.startswith("heaptide: all tool IDs of sys.monitoring are taken") and stderr.count("\n") == 1


@pytest.mark.once
def test_program_whose_working_folder_was_deleted_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    code = "import os, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]); os.execv(sys.executable, sys.argv[2:])"
    program = [sys.executable, "-c", "held = bytes(3_000_000); print('ran')"]
    variables = {**os.environ, "HEAPTIDE": "run", "HEAPTIDE_QUIET": "1", "HEAPTIDE_OUT": str(tmp_path / "job.tide")}
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(folder), *program], env=variables, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    assert (tmp_path / "job.tide").exists()


@pytest.mark.once
def test_folder_named_like_a_configuration_file_is_ignored(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "heaptide.toml", "heaptide.cfg"):
        (tmp_path / name).mkdir()
    assert recorded_alone(tmp_path, "print('ran')") == ("ran\n", "")


def recorded_alone(folder: Path, program: str) -> tuple[str, str]:
    """Run a program that uses Heaptide itself, and return its output."""
    script = folder / "job.py"
    script.write_text(textwrap.dedent(program), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done
    return done.stdout, done.stderr
