"""`heaptide attach` across borders: another namespace, another user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.attached_process import ask, attach, blocked, detach, end, left_behind, n_asked
from support.commands import heaptide

pytestmark = pytest.mark.once


def test_process_in_another_pid_and_mount_namespace_is_recorded_without_heaptide_in_it(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    flags = ["--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private"]
    if unshare is None or subprocess.run([unshare, *flags, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces cannot be made here")
    inside = tmp_path / "inside"
    inside.mkdir()
    # Its temporary folder is a file system of its own, and our package is hidden from it.
    package = subprocess.run(
        [sys.executable, "-c", "import heaptide; print(heaptide.__path__[0])"], capture_output=True, text=True
    ).stdout.strip()
    script = 'mount -t tmpfs tmpfs "$1" && mount -t tmpfs tmpfs "$2" && shift 2 && exec "$@"'
    python = [unshare, *flags, "sh", "-c", script, "sh", inside, package, sys.executable]
    environment = {**os.environ, "TMPDIR": str(inside)}
    capture = tmp_path / "x.tide"
    with blocked(*python, env=environment) as outer:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        [pid] = map(int, children)
        assert os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
        done = heaptide("attach", str(pid), "-o", capture)
        assert "it sees other files than we do" in done.stderr
        assert list(inside.iterdir()) == [] and not capture.exists()
        ask(outer, 8)
        heaptide("detach", str(pid))
        assert os.listdir(f"/proc/{pid}/root{inside}") == []
        # What the first visit had not loaded comes from the copy that is made for the next one.
        heaptide("heap", "take", "--pid", str(pid), "-o", tmp_path / "x.heap")
        assert "bytearray" in heaptide("heap", "types", tmp_path / "x.heap").stdout
        assert os.listdir(f"/proc/{pid}/root{inside}") == []
        # Once more, now that the library is loaded there.
        heaptide("attach", str(pid), "-f", "--native", "-o", capture)
        ask(outer, 9)
        assert f"recorded into {capture}" in heaptide("detach", str(pid)).stderr
        assert os.listdir(f"/proc/{pid}/root{inside}") == []
        end(outer)
    assert n_asked(capture) == 1
    # Names were looked up in its own files while these could be seen.
    assert "names of 0 addresses added" in heaptide("symbols", "bundle", capture).stdout
    # Its own number, not ours.
    assert json.loads(heaptide("stats", "--json", capture).stdout)["metadata"]["pid"] != pid


def test_process_of_another_user_is_recorded_by_root() -> None:
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("setpriv and root are needed to become somebody else")
    reader = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    other = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", *reader]
    if subprocess.run([*other, sys.executable, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip("nobody else can run the interpreter here")
    # A folder that the process can enter, but not write.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        capture = Path(folder) / "x.tide"
        with blocked(*other, sys.executable) as process:
            attach(process, "-o", capture)
            ask(process, 6)
            detach(process)
            end(process)
        assert capture.stat().st_uid == 65534
        assert n_asked(capture) == 1
    assert left_behind(process) == []
