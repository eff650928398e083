"""Builds and checks the files of a release: an sdist, and a wheel for old distributions; `make release` runs it.

The wheel is built from the unpacked sdist, which proves that the sdist is complete. Zig links it against the symbols of
an old glibc, auditwheel proves the tag of the wheel, and twine checks the metadata. Then the script tests recordings
and reports in a fresh environment of every supported Python of this machine. It uploads nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from pythons import supported

REPOSITORY = Path(__file__).resolve().parent.parent
# The oldest glibc that Rust's standard library supports.
PLATFORM = "manylinux_2_17"
# Parts of messages that `heaptide attach` prints if the kernel forbids it. The wheel is not at fault.
ATTACH_FORBIDDEN = ("ptrace_scope", "CAP_SYS_PTRACE", "forbids access")

# A program that leaks until it is killed.
SERVICE = """
import time
kept = []
print("started", flush=True)
while True:
    kept.append(bytearray(100_000))
    time.sleep(0.02)
"""


def main() -> int:
    """Build and check, and print one line per Python."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for sdist and wheel, replaced")
    parser.add_argument("--work", type=Path, required=True, help="folder for compiled files, kept")
    options = parser.parse_args()
    out, work = options.out.resolve(), options.work.resolve()
    shutil.rmtree(out, ignore_errors=True)
    # maturin finds zig in the environment of this interpreter.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    module("maturin", "sdist", "--out", str(out), cwd=REPOSITORY)
    (sdist,) = out.glob("heaptide-*.tar.gz")
    wheel = build_wheel(sdist, out, work)
    prove_platform(wheel)
    module("twine", "check", "--strict", str(sdist), str(wheel))
    interpreters = supported()
    for (major, minor), python in interpreters.items():
        with tempfile.TemporaryDirectory(prefix="heaptide-release-") as folder:
            print(f"Python {major}.{minor}: {smoke_test(Path(folder), python, wheel)}", flush=True)
    print(f"\n{sdist}\n{wheel}")
    return 0 if interpreters else 1


def module(name: str, *arguments: str, **options: Any) -> str:
    """Run a tool of this environment and return its output; exit if it fails."""
    return run([sys.executable, "-m", name, *arguments], **options)


def run(command: list[str], **options: Any) -> str:
    """Run a command and return what it printed; exit with its output if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexit code {done.returncode}:\n{done.stdout}")
    output: str = done.stdout
    return output


def build_wheel(sdist: Path, out: Path, work: Path) -> Path:
    """Build the wheel from the unpacked sdist, with zig as linker."""
    with tempfile.TemporaryDirectory(prefix="heaptide-sdist-") as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        build = [
            "build",
            "--release",
            "--locked",
            "--zig",
            "--compatibility",
            PLATFORM,
            "--interpreter",
            sys.executable,
        ]
        module("maturin", *build, "--target-dir", str(work), "--out", str(out), cwd=source)
    (wheel,) = out.glob("heaptide-*.whl")
    return wheel


def prove_platform(wheel: Path) -> None:
    """Exit unless auditwheel confirms the platform in the name of the wheel."""
    answer = module("auditwheel", "show", str(wheel))
    consistent = re.search(r'consistent\s+with\s+the\s+following\s+platform\s+tag:\s+"(\w+)"', answer)
    if PLATFORM not in wheel.name or not consistent or not consistent[1].startswith(PLATFORM):
        sys.exit(f"{wheel.name} does not suit {PLATFORM}:\n{answer}")
    print(f"{wheel.name}: auditwheel confirms {consistent[1]}", flush=True)


def smoke_test(folder: Path, python: str, wheel: Path) -> str:
    """Install the wheel in a fresh environment, record a program, make reports, attach; return what worked."""
    environment = folder / "environment"
    run([python, "-m", "venv", "--without-pip", str(environment)])
    module("pip", "--python", str(environment), "install", "--no-index", "--no-deps", str(wheel))
    heaptide = str(environment / "bin" / "heaptide")
    job = REPOSITORY / "examples" / "memory-leak" / "job.py"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEAPTIDE")}
    run([heaptide, "run", "-o", "job.tide", str(job)], cwd=folder, env=clean)
    if "perform" not in (statistics := run([heaptide, "stats", "job.tide"], cwd=folder, env=clean)):
        sys.exit(f"the statistics do not name the function that leaks:\n{statistics}")
    run([heaptide, "flamegraph", "job.tide"], cwd=folder, env=clean)
    return "run, stats, flamegraph, " + attach(heaptide, environment, folder, clean)


def attach(heaptide: str, environment: Path, folder: Path, clean: dict[str, str]) -> str:
    """Attach to a running program and detach; return what happened."""
    command = [str(environment / "bin" / "python"), "-I", "-c", SERVICE]
    with subprocess.Popen(command, text=True, cwd=folder, env=clean, stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        service.stdout.readline()
        try:
            start = [heaptide, "attach", str(service.pid), "-o", "service.tide"]
            tried = subprocess.run(start, cwd=folder, env=clean, capture_output=True, text=True)
            if any(reason in tried.stderr for reason in ATTACH_FORBIDDEN):
                return f"attach is not permitted here: {tried.stderr.strip()}"
            if tried.returncode != 0:
                sys.exit(f"attach failed:\n{tried.stderr}")
            run([heaptide, "detach", str(service.pid)], cwd=folder, env=clean)
            run([heaptide, "stats", "service.tide"], cwd=folder, env=clean)
        finally:
            service.kill()
    return "attach, detach"


if __name__ == "__main__":
    sys.exit(main())
