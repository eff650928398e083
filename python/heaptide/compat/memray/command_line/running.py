"""``memray run``: ``heaptide run`` with memray's checks, file names and messages."""

from __future__ import annotations

import argparse
import ast
import os
import socket
import sys
from pathlib import Path

from heaptide.__main__ import main as heaptide
from heaptide.commands.run import run_program
from heaptide.compat.memray.errors import MemrayCommandError


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Check the options as memray does, and run the program."""
    is_live = options.live_mode or options.live_remote_mode
    if options.live_port is not None and not options.live_remote_mode:
        parser.error("The --live-port argument requires --live-remote")
    if options.follow_fork and is_live:
        parser.error("--follow-fork cannot be used with the live TUI")
    if options.aggregate and is_live:
        parser.error("--aggregate cannot be used with the live TUI")
    if options.buffered_file_io and is_live:
        parser.error("--buffered-file-io cannot be used with --live/--live-remote")
    if options.run_as_cmd and _exists(options.script):
        parser.error("remove the option -c to run a file")
    _check_program(options)
    words = ["run"]
    words += ["--native"] * options.native + ["--trace-python-allocators"] * options.trace_python_allocators
    words += ["--aggregate"] * options.aggregate + ["--follow-fork"] * options.follow_fork
    if options.live_mode:
        return heaptide([*words, "--live", *_program(options)])
    if options.live_remote_mode:
        return _run_for_reader(options, words)
    return _run_into_file(options, words)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def _check_program(options: argparse.Namespace) -> None:
    if options.run_as_module:
        return  # finding a module would import its packages before the recording starts
    try:
        ast.parse(options.script.encode() if options.run_as_cmd else Path(options.script).read_bytes())
    except IsADirectoryError:
        pass  # a folder with a __main__ module
    except (SyntaxError, ValueError):
        raise MemrayCommandError(
            "Only valid Python files or commands can be executed under memray", exit_code=1
        ) from None
    except OSError as error:
        raise MemrayCommandError(str(error), exit_code=1) from None


def _program(options: argparse.Namespace) -> list[str]:
    first = ["-m"] if options.run_as_module else ["-c"] if options.run_as_cmd else ["--"]
    return [*first, options.script, *options.script_args]


def _run_into_file(options: argparse.Namespace, words: list[str]) -> int:
    output = options.output
    if output is None:
        script = "string" if options.run_as_cmd else options.script
        output = os.path.join(os.path.dirname(script), f"memray-{os.path.basename(script)}.{os.getpid()}.bin")
    if not options.quiet:
        print(f"Writing profile results into {output}", flush=True)
    _check_output(output, options.force)
    pid = os.getpid()
    is_started = True
    try:
        if output == os.devnull:
            return _run_unrecorded(options)
        return heaptide([*words, "-q", *["-f"] * options.force, "-o", output, *_program(options)])
    except SystemExit as error:
        reason = _reason_of_runpy(options, error)
        if reason:
            is_started = False
            raise SystemExit(f"memray: {reason}") from None
        raise
    finally:
        if is_started and not options.quiet and os.getpid() == pid:
            _print_next_steps(output)


def _run_unrecorded(options: argparse.Namespace) -> int:
    """Run a program without recording it, for `-o /dev/null`: the null device cannot be mapped into memory."""
    kind = "module" if options.run_as_module else "code" if options.run_as_cmd else "script"
    return run_program({"kind": kind, "target": options.script, "arguments": options.script_args}, lambda: 0)


def _reason_of_runpy(options: argparse.Namespace, error: SystemExit) -> str:
    """Return why a module was not found, or an empty text if the program itself exited."""
    prefix = f"{sys.executable}: "
    text = error.code if isinstance(error.code, str) else ""
    return text.removeprefix(prefix) if options.run_as_module and text.startswith(prefix) else ""


def _print_next_steps(output: str) -> None:
    try:
        print(
            "[memray] Successfully generated profile results.\n\n"
            "You can now generate reports from the stored allocation records.\n"
            "Some example commands to generate reports:\n\n"
            f"{sys.executable} -m memray flamegraph {output}",
            flush=True,
        )
    except BrokenPipeError:  # keep the program's exit code, even if nothing reads the output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_output(output: str, force: bool) -> None:
    if os.path.lexists(output) and not force and output != os.devnull:
        raise MemrayCommandError(
            f"Output file {output} already exists. Memray can overwrite it with the --force CLI argument or the "
            "overwrite=True API argument.",
            exit_code=1,
        )
    folder = os.path.dirname(output) or os.curdir
    reason = ""
    if os.path.isdir(output):
        reason = "Is a directory"
    elif not output or not os.path.isdir(folder):
        reason = "No such file or directory"
    elif not os.access(folder, os.W_OK):
        reason = "Permission denied"
    if reason:
        raise MemrayCommandError(f"Could not create output file {output}: {reason}", exit_code=1)


def _run_for_reader(options: argparse.Namespace, words: list[str]) -> int:
    """Wait for `memray live` or a `SocketReader`, then run the program."""
    from heaptide.compat.memray.destinations import SocketDestination
    from heaptide.compat.memray.live_sockets import LiveServer

    port = options.live_port
    if port is None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    if not 0 < port < 65536:
        raise MemrayCommandError(f"Invalid port: {port}", exit_code=1)

    def explain() -> None:
        if not options.quiet:
            print(f"Run '{sys.executable} -m memray live {port}' in another shell to see live results", flush=True)

    try:
        server = LiveServer(SocketDestination(port), options.native, explain)
    except OSError as error:
        raise MemrayCommandError(f"Could not listen on port {port}: {error.strerror}", exit_code=1) from None
    except KeyboardInterrupt:
        return 0
    try:
        return heaptide([*words, "-q", "-o", server.path, *_program(options)])
    finally:
        server.close()
