"""Tests the command lines that COMPSs starts for its master and its workers: `python -m mprof run …`."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from platform_support.environments import REPOSITORY, Environment
from support.waiting import wait_until

COMPAT = {"HEAPTIDE_COMPAT": "memory_profiler"}
# The command that the runtime starts; `launch.py` is the binding's launcher.
MPROF = ("python", "-u", "-O", "-m", "mprof", "run", "--multiprocess", "--include-children")
LAUNCH = """
import subprocess, sys
held = bytearray(64 << 20)
print(sys.flags.optimize, "-u" in sys.orig_argv, sys.argv[1:], sys.stdin.readline().strip(), flush=True)
subprocess.run([sys.executable, "-c", "import time; held = bytearray(32 << 20); time.sleep(0.5)"], check=True)
sys.exit(3)
"""


@pytest.fixture(scope="session")
def compss(installed: Callable[[str], Environment]) -> Environment:
    """The environment with memory_profiler and Open MPI."""
    return installed("compss")


def run(compss: Environment, folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `MPROF WORDS` in a folder with launch.py, with one line of input."""
    (folder / "launch.py").write_text(LAUNCH)
    command = compss.words((*MPROF, *words))
    return subprocess.run(
        command, input="typed\n", capture_output=True, text=True, cwd=folder, env=compss.variables(COMPAT)
    )


def sizes_in(profile: Path) -> list[float]:
    """Return the sizes of the whole program in MiB."""
    return [float(line.split()[1]) for line in profile.read_text().splitlines() if line.startswith("MEM ")]


@pytest.mark.behaviour("master", "format", "exit_code", "document")
def test_master_writes_a_profile_and_keeps_the_programs_behaviour(compss: Environment, tmp_path: Path) -> None:
    done = run(compss, tmp_path, "launch.py", "app", "--flag")
    assert done.returncode == 3, done.stderr
    assert "1 True ['app', '--flag'] typed" in done.stdout
    (profile,) = tmp_path.glob("mprofile_*.dat")
    assert re.fullmatch(r"mprofile_\d{14}\.dat", profile.name)
    lines = profile.read_text().splitlines()
    assert lines[0].startswith("CMDLINE ") and "launch.py" in lines[0]
    assert any(re.fullmatch(r"MEM \d+\.\d+ \d+\.\d+", line) for line in lines)
    assert any(re.fullmatch(r"CHLD \d+ \d+\.\d+ \d+\.\d+", line) for line in lines)
    # The real mprof reads and draws it.
    peak = compss.run("python", "-m", "mprof", "peak", profile.name, cwd=tmp_path).stdout
    assert float(re.findall(r"(\d+\.\d+) MiB", peak)[0]) >= 96
    plot = ("python", "-m", "mprof", "plot", "-o")
    compss.run(*plot, "real.png", profile.name, cwd=tmp_path, MPLCONFIGDIR=str(tmp_path))
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")
    # Heaptide's mprof draws the same peak, without matplotlib.
    (tmp_path / "matplotlib.py").write_text("raise ImportError('matplotlib is not needed')\n")
    compss.run(*plot, "profile.svg", profile.name, cwd=tmp_path, **COMPAT, PYTHONPATH=str(tmp_path))
    drawing = (tmp_path / "profile.svg").read_text()
    size = max(sizes_in(profile))
    assert drawing.startswith("<svg") and f"peak {size:.1f} MiB" in drawing


@pytest.mark.behaviour("command", "document")
def test_compat_install_creates_mprof_without_memory_profiler(compss: Environment, tmp_path: Path) -> None:
    assert find_spec("memory_profiler") is None and find_spec("mprof") is None
    install = [sys.executable, "-m", "heaptide", "compat", "install", "mprof", "--to", "bin"]
    subprocess.run(install, check=True, capture_output=True, cwd=tmp_path)
    (tmp_path / "launch.py").write_text(LAUNCH)

    def mprof(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**compss.variables({}), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        command = ["mprof", *words]
        return subprocess.run(command, input="typed\n", capture_output=True, text=True, cwd=tmp_path, env=env)

    done = mprof("run", "--multiprocess", "--include-children", "--output", "node.dat", "launch.py", "app")
    assert done.returncode == 3 and "0 False ['app'] typed" in done.stdout, done.stderr
    assert re.search(r"node\.dat\t\d+\.\d+ MiB", mprof("peak", "node.dat").stdout)
    assert mprof("plot", "-o", "node.svg", "node.dat").returncode == 0
    assert (tmp_path / "node.svg").read_text().startswith("<svg")


@pytest.mark.behaviour("command")
def test_mprof_of_memory_profiler_is_not_replaced_and_runs_heaptide_if_the_variable_is_set(
    compss: Environment, tmp_path: Path
) -> None:
    before = (compss.bin / "mprof").read_bytes()
    refused = compss.run("heaptide", "compat", "install", "mprof", cwd=tmp_path, check=False)
    assert refused.returncode == 1 and "exists and is not Heaptide's" in refused.stderr
    assert (compss.bin / "mprof").read_bytes() == before
    (tmp_path / "app.py").write_text("raise SystemExit(3)\n")
    # memory_profiler's own mprof drops the exit code.
    for env, code in (({}, 0), (COMPAT, 3)):
        words = ("mprof", "run", "--multiprocess", "--include-children", "--output", f"{code}.dat", "app.py")
        assert compss.run(*words, cwd=tmp_path, check=False, **env).returncode == code
        assert ("HEAPTIDE " in (tmp_path / f"{code}.dat").read_text()) == bool(code)


@pytest.mark.behaviour("workers", "fresh_file")
def test_each_run_of_a_worker_writes_a_new_file_named_after_its_host(compss: Environment, tmp_path: Path) -> None:
    host = os.uname().nodename
    # The runtime appends the host name to COMPSS_WORKER_PROFILE_PATH. On worker nodes, the folder does not exist.
    folder = tmp_path / "profiles" / "of" / "workers"
    for _ in range(2):
        assert run(compss, tmp_path, "--output", folder / f"{host}.dat", "launch.py").returncode == 3
    files = sorted(path.name for path in folder.iterdir())
    assert len(files) == 2 and f"{host}.dat" in files
    assert all((folder / name).read_text().count("CMDLINE") == 1 for name in files)


@pytest.mark.behaviour("exit_code")
def test_signal_that_ends_the_program_ends_the_command(compss: Environment, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import os, signal, time\nopen('ready', 'w')\ntime.sleep(60)\n")
    process = subprocess.Popen(
        compss.words((*MPROF, "--output", "app.dat", "app.py")), cwd=tmp_path, env=compss.variables(COMPAT)
    )
    wait_until((tmp_path / "ready").exists, "the program")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM


# Each rank keeps its block until the profile has a sample of it.
RANKED = """
import time
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
held = bytearray((rank + 1) << 25)
MPI.COMM_WORLD.barrier()
limit = time.monotonic() + 60
while time.monotonic() < limit:
    with open(f"node-rank{rank}.dat") as file:
        if any(float(line.split()[1]) >= (rank + 1) * 32 for line in file if line.startswith("MEM")):
            break
    time.sleep(0.02)
"""


@pytest.mark.behaviour("ranks")
def test_four_ranks_of_a_host_have_their_own_files(compss: Environment, tmp_path: Path) -> None:
    (tmp_path / "ranked.py").write_text(RANKED)
    command = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", compss.python, *MPROF[1:])
    compss.run(*command, "--output", "node.dat", "ranked.py", cwd=tmp_path, **COMPAT)
    files = sorted(path.name for path in tmp_path.glob("node*.dat"))
    assert files == [f"node-rank{rank}.dat" for rank in range(4)]
    for rank, name in enumerate(files):
        sizes = [
            float(line.split()[1]) for line in (tmp_path / name).read_text().splitlines() if line.startswith("MEM")
        ]
        assert max(sizes) >= (rank + 1) * 32


# A forked child that shares 64 MiB with its parent, until the profile has a sample of it.
SHARING = """
import os, time
held = bytearray(b"x") * (64 << 20)
child = os.fork()
if child:
    os.waitpid(child, 0)
limit = time.monotonic() + 60
while not child and time.monotonic() < limit and "CHLD" not in open("size.dat").read():
    time.sleep(0.02)
"""


@pytest.mark.behaviour("sizes")
@pytest.mark.parametrize(
    ("backend", "at_least", "below"), [("psutil", 64, 100), ("psutil_pss", 32, 50), ("psutil_uss", 0, 20)]
)
def test_proportional_and_unique_sizes_are_recorded(
    compss: Environment, tmp_path: Path, backend: str, at_least: int, below: int
) -> None:
    (tmp_path / "sharing.py").write_text(SHARING)
    compss.run(*MPROF, "--backend", backend, "--output", "size.dat", "sharing.py", cwd=tmp_path, **COMPAT)
    lines = (tmp_path / "size.dat").read_text().splitlines()
    # The size of the child includes all, half or none of the pages that it shares with its parent.
    sizes = [float(line.split()[2]) for line in lines if line.startswith("CHLD ")]
    assert at_least <= max(sizes) < below


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that all threads of a process have used."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@pytest.mark.behaviour("sampling_cost")
def test_sample_of_64_children_takes_at_most_a_hundredth_of_the_interval(compss: Environment, tmp_path: Path) -> None:
    profile = tmp_path / "many.dat"
    program = REPOSITORY / "bench" / "programs" / "many_children.py"
    command = compss.words((*MPROF, "--output", profile, program, "64"))
    with subprocess.Popen(
        command, cwd=tmp_path, env=compss.variables(COMPAT), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as sampler:
        assert sampler.stdin is not None and sampler.stdout is not None
        assert "ready\n" in iter(sampler.stdout.readline, "")
        costs = []
        # Eight measurements of at least ten samples each. The first ones include start-up, and other load on the
        # machine makes some of them longer, so their median is compared with the limit.
        for _ in range(8):
            before, n_before = cpu_seconds(sampler.pid), len(sizes_in(profile))
            wait_until(lambda n=n_before: len(sizes_in(profile)) >= n + 10 or time.sleep(0.1), "ten samples")
            costs.append((cpu_seconds(sampler.pid) - before) / (len(sizes_in(profile)) - n_before))
        sampler.stdin.close()
    assert sampler.returncode == 0
    # The first and the last of the 80 samples may begin before or end after this program counts them.
    assert profile.read_text().count("CHLD") >= 64 * 78
    # COMPSs' command line samples every 0.1 s.
    assert statistics.median(costs) <= 0.1 / 100, costs
