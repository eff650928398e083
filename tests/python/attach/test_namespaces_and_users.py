"""Tests `heaptide attach` to processes of other namespaces and other users."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.attached_process import ask, attach, blocked, detach, end, n_asked, remaining_folders
from support.commands import heaptide

pytestmark = pytest.mark.once


def test_process_in_other_namespaces_is_recorded_without_heaptide_installed_there(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    flags = ["--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private"]
    if unshare is None or subprocess.run([unshare, *flags, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces cannot be created here")
    inside = tmp_path / "inside"
    inside.mkdir()
    # The process has a separate temporary file system and cannot see the heaptide package.
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
        assert "the process has its own file system" in done.stderr
        assert list(inside.iterdir()) == [] and not capture.exists()
        ask(outer, 8)
        heaptide("detach", str(pid))
        assert os.listdir(f"/proc/{pid}/root{inside}") == []
        # Modules that attach did not load come from the copy that is made for this command.
        heaptide("heap", "take", "--pid", str(pid), "-o", tmp_path / "x.heap")
        assert "bytearray" in heaptide("heap", "types", tmp_path / "x.heap").stdout
        assert os.listdir(f"/proc/{pid}/root{inside}") == []
        # Attach again, now that the process has loaded the library.
        heaptide("attach", str(pid), "-f", "--native", "-o", capture)
        ask(outer, 9)
        assert f"recorded into {capture}" in heaptide("detach", str(pid)).stderr
        assert os.listdir(f"/proc/{pid}/root{inside}") == []
        end(outer)
    assert n_asked(capture) == 1
    # Detach resolved the names in the files of the process, so none is left to add.
    assert ": 0 symbols added" in heaptide("symbols", "bundle", capture).stdout
    # The capture holds the process ID inside the namespace.
    assert json.loads(heaptide("stats", "--json", capture).stdout)["metadata"]["pid"] != pid


def test_process_of_another_user_is_recorded_by_root() -> None:
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("setpriv and root are needed to switch to another user")
    reader = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    other = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", *reader]
    if subprocess.run([*other, sys.executable, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip("other users cannot run the interpreter here")
    # A folder that the process can enter but not write to.
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
    assert remaining_folders(process) == []
