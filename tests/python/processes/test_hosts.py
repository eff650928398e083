"""Tests one report of files of two hosts. Each host is a set of namespaces: host name, process IDs and network."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide
from support.controlled_program import BASE, Answer, ask
from support.waiting import wait_until

pytestmark = pytest.mark.once

UNSHARE = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--uts", "--net", "--kill-child"]
HEAPTIDE = [sys.executable, "-m", "heaptide"]

JOB = """
import os, sys, heaptide
heaptide.label(queue=sys.argv[1])
kept = [bytearray(300_000) for _ in range(3)]
print("ready", flush=True)
for _ in sys.stdin:
    kept.append(bytearray(300_000))
    print(len(kept), flush=True)
"""


def has_namespaces() -> bool:
    """Return whether this user may create such namespaces."""
    return (
        shutil.which("unshare") is not None and subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0
    )


class Host:
    """A program on a separate host, with the control API at a Unix socket."""

    def __init__(self, folder: Path, name: str, **env: str) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.address = f"unix:{self.folder}/c.sock"
        # Requests from another host always need a token. With a token of its own, the program demands it here as well.
        self.token = self.folder / "token"
        self.token.write_text(f"token-of-{name}")
        (self.folder / "job.py").write_text(JOB)
        environment = {
            **os.environ,
            "HEAPTIDE_CONTROL": self.address,
            "HEAPTIDE_RUNTIME_DIR": str(self.folder / "r"),
            "HEAPTIDE_SESSIONS": str(self.folder / "sessions"),
            "HEAPTIDE_TOKEN_FILE": str(self.token),
            "HEAPTIDE_RUN": "nightly-42",
            "HEAPTIDE_LABELS": f"service=shop,zone={name}",
            **env,
        }
        start = f'hostname {name} 2>/dev/null || echo {name} > /proc/sys/kernel/hostname; exec "$@"'
        self.process = subprocess.Popen(
            [*UNSHARE, "sh", "-c", start, "sh", sys.executable, "job.py", f"mail-{name}"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def line(self) -> str:
        """Return the next line of output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leak(self) -> None:
        """Let the program keep another block."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.line()

    def ask(self, method: str, path: str) -> Answer:
        """Send a request with the token."""
        return ask(self.address, method, f"{BASE}/{path}", None, {"Authorization": f"Bearer token-of-{self.name}"})

    def post(self, action: str) -> dict[str, Any]:
        """Start or stop the recording."""
        answer = self.ask("POST", action)
        assert answer.status == 200, answer.body
        result: dict[str, Any] = answer.json()
        return result

    def stop(self) -> None:
        """End the program."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Two hosts whose programs have the same process ID."""
    if not has_namespaces():
        pytest.skip("namespaces cannot be created here")
    folder = tmp_path_factory.mktemp("h")
    hosts = [Host(folder, name) for name in ("web-1", "web-2")]
    yield hosts
    for host in hosts:
        host.stop()


def collect(hosts: list[Host], folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Copy the files of all hosts into a folder."""
    urls = [word for host in hosts for word in ("--url", host.address, "--token-file", str(host.token))]
    return heaptide("ctl", *urls, *options, "-o", folder, "collect", check=False)


def test_files_of_two_hosts_make_one_report_and_one_table(hosts: list[Host], tmp_path: Path) -> None:
    for host in hosts:
        host.post("start")
        host.leak()
        host.leak()
        host.post("stop")
        (host.folder / "sessions" / "nightly-42").mkdir(mode=0o700, exist_ok=True)
        (host.folder / "sessions" / "nightly-42" / f"jobs-{host.name}.jsonl").write_text('{"v": 1}\n')
        shutil.copy(write_timeline(tmp_path, host.name), host.folder / "sessions" / f"{host.name}.timeline")
    folder = tmp_path / "collected"
    done = collect(hosts, folder)
    assert done.returncode == 0, done.stderr
    assert folder.stat().st_mode & 0o777 == 0o700
    files = sorted(path.name for path in folder.rglob("*") if path.is_file())
    assert files[:1] == ["1.tide"] and files.count("1.tide") == 2
    assert {"jobs-web-1.jsonl", "jobs-web-2.jsonl", "web-1.timeline", "web-2.timeline", "collected.json"} <= set(files)
    rows = heaptide("summary", "--total", "--by", "process", folder).stdout
    assert "process 1@web-1 (job.py)" in rows and "process 1@web-2 (job.py)" in rows
    assert "different runs" not in rows
    text = heaptide("stats", folder).stdout
    assert "processes of 2 hosts (web-1, web-2) are aligned by their clocks, which differ by up to" in text
    stats = json.loads(heaptide("stats", "--json", folder).stdout)
    processes = stats["heaptide"]["processes"]
    assert {one["run"] for one in processes} == {"nightly-42"}
    assert [one["labels"] for one in processes] == [
        {"service": "shop", "zone": name, "queue": f"mail-{name}"} for name in ("web-1", "web-2")
    ]
    for filters in (
        ["--host", "web-2"],
        ["--label", "zone=*-2"],
        ["--process", "1@web-2"],
        ["--label", "queue=mail-web-2"],
    ):
        only = json.loads(heaptide("stats", "--json", *filters, folder).stdout)
        assert [one["identity"]["host"] for one in only["heaptide"]["processes"]] == ["web-2"], filters
    plot = heaptide("plot", "-o", tmp_path / "plot.svg", folder)
    assert plot.returncode == 0 and (tmp_path / "plot.svg").stat().st_size > 1000
    for page in ("flamegraph", "table", "timeline"):
        heaptide(page, "-f", "-o", tmp_path / f"{page}.html", folder)


def write_timeline(folder: Path, host: str) -> Path:
    """Record a timeline, replace the host name in it, and return its path."""
    path = folder / f"{host}.timeline"
    env = {**os.environ, "HEAPTIDE_RUN": "nightly-42", "HEAPTIDE_LABELS": f"zone={host}"}
    subprocess.run(
        [*HEAPTIDE, "record", "-q", "-o", path, sys.executable, "-c", "import time; time.sleep(0.3)"],
        check=True,
        env=env,
    )
    text = path.read_text()
    assert "fact run=nightly-42\n" in text and f"fact label.zone={host}\n" in text
    lines = [f"host {host}" if line.startswith("host ") else line for line in text.splitlines()]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_collection_continues_where_it_was_interrupted(hosts: list[Host], tmp_path: Path) -> None:
    session = hosts[0].post("start")["session"]
    for _ in range(5):
        hosts[0].leak()
    hosts[0].post("stop")
    folder = tmp_path / "collected"
    assert collect(hosts, folder).returncode == 0
    capture = folder / "web-1" / session / "1.tide"
    content = capture.read_bytes()
    # Nothing is copied twice.
    written = capture.stat().st_mtime_ns
    assert "0 files" in collect(hosts, folder).stdout and capture.stat().st_mtime_ns == written
    # The first part of an interrupted download is kept.
    tag = hosts[0].ask("HEAD", f"sessions/{session}/report?process=1").headers["Etag"]
    capture.unlink()
    capture.with_name("1.tide.part").write_bytes(content[:1000])
    capture.with_name("1.tide.tag").write_text(tag)
    done = collect(hosts, folder)
    assert f"{len(content) - 1000} bytes" in done.stdout, done.stdout
    assert capture.read_bytes() == content
    assert sorted(path.name for path in capture.parent.iterdir()) == ["1.tide"]
    # A part of another file is not continued.
    capture.unlink()
    capture.with_name("1.tide.part").write_bytes(b"x" * 1000)
    capture.with_name("1.tide.tag").write_text('"another"')
    collect(hosts, folder)
    assert capture.read_bytes() == content


def test_host_that_does_not_answer_does_not_keep_the_others_from_being_collected(
    hosts: list[Host], tmp_path: Path
) -> None:
    for host in hosts:
        host.post("start")
        host.post("stop")
    hosts[0].process.send_signal(signal.SIGKILL)
    hosts[0].process.wait()
    done = collect(hosts, tmp_path / "collected")
    assert done.returncode == 1 and "1 of 2 programs could not be collected from" in done.stderr
    assert len(list((tmp_path / "collected" / "web-2").rglob("*.tide"))) == 1


def test_each_address_has_its_own_token(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    folder = tmp_path_factory.mktemp("k")
    (folder / "job.py").write_text(JOB)
    programs, urls = [], []
    try:
        for name in ("one", "two"):
            (folder / f"{name}.token").write_text(f"token-of-{name}")
            code = f"""
                import heaptide.control, sys
                control = heaptide.control.start("0.0.0.0:0", token="token-of-{name}", name="{name}")
                print(control.address, flush=True)
                sys.stdin.read()
            """
            env = {"HEAPTIDE_RUNTIME_DIR": str(folder / name), "HEAPTIDE_SESSIONS": str(folder / f"s{name}")}
            program = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(code)],
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            programs.append(program)
            assert program.stdout is not None
            port = program.stdout.readline().strip().rpartition(":")[2]
            urls.append(f"http://127.0.0.1:{port}")
        words = [word for url in urls for word in ("--url", url)]
        tokens = [word for name in ("one", "two") for word in ("--token-file", str(folder / f"{name}.token"))]
        out = ["-o", str(tmp_path / "c"), "collect"]
        assert heaptide("ctl", *words, *tokens, *out, check=False).returncode == 0
        swapped = [word for name in ("two", "one") for word in ("--token-file", str(folder / f"{name}.token"))]
        refused = heaptide("ctl", *words, *swapped, *out, check=False)
        assert refused.returncode == 1 and "token" in refused.stderr
        assert heaptide("ctl", *words, *words, *tokens, *out, check=False).returncode == 2
        assert heaptide("ctl", *words, "status", check=False).returncode == 2
    finally:
        for program in programs:
            assert program.stdin is not None
            program.stdin.close()
            program.wait()


def test_ctl_acts_on_all_programs_that_a_name_or_label_chooses(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("a")
    programs = []
    env = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(folder / "r")}
    try:
        for name, labels in (("shop.py", "queue=mail"), ("shop.py", "queue=sms"), ("etl.py", "queue=mail")):
            (folder / name).write_text(JOB.replace("heaptide.label", "(lambda **_: 0)"))
            program = subprocess.Popen(
                [sys.executable, name, "x"],
                cwd=folder,
                env={**env, "HEAPTIDE_CONTROL": f"unix:{folder}/{{pid}}.sock", "HEAPTIDE_LABELS": labels},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            programs.append(program)
            assert program.stdout is not None and program.stdout.readline() == "ready\n"

        def ctl(*words: str) -> subprocess.CompletedProcess[str]:
            return heaptide("ctl", *words, check=False, env=env)

        def recorded() -> list[bool]:
            lines = ctl("list").stdout.splitlines()
            found = [next(line for line in lines if f"pid {program.pid}" in line) for program in programs]
            return ["  recording  " in line for line in found]

        refused = ctl("start")
        assert refused.returncode == 2
        *listed, reason = refused.stderr.splitlines()
        choose = "heaptide: 3 programs are running: choose one with --pid"
        assert reason == f"{choose}, or several with --name, --label or --all"
        refused = heaptide("heap", "take", check=False, env=env)
        assert refused.returncode == 2 and refused.stderr.splitlines()[-1] == choose
        assert [sum(f"pid {program.pid} " in line for line in listed) for program in programs] == [1, 1, 1]
        assert ctl("--name", "shop*", "start").returncode == 0
        assert recorded() == [True, True, False]
        assert ctl("--label", "queue=mail", "stop").returncode == 0
        assert recorded() == [False, True, False]
        assert ctl("--all", "start").returncode == 0
        assert recorded() == [True, True, True]
        assert ctl("--all", "stop").returncode == 0
        assert recorded() == [False, False, False]
        no_match = ctl("--name", "celery*", "start")
        assert no_match.returncode == 1 and "no running program" in no_match.stderr
        assert ctl("--all", "--pid", "1", "start").returncode == 2
        assert ctl("--name", "etl.py", "-o", str(folder / "c"), "collect").returncode == 0
        wait_until(lambda: list((folder / "c").rglob("*.tide")), "the collected capture")
    finally:
        for program in programs:
            assert program.stdin is not None
            program.stdin.close()
            program.wait()
