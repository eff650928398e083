"""The run: all processes of one execution of a program, also on several hosts, under one name.

Children inherit the name in ``HEAPTIDE_RUN``, or in the older ``HEAPTIDE_GROUP``. Without either, the first process
names the run after its program. Forked and spawned children belong to the run of their parent, MPI ranks to that of
their launcher. A session is one start and stop of a recording within a run.
"""

from __future__ import annotations

import os

from heaptide.recording.program import program_name, recorded_command, started_with

RUN = "HEAPTIDE_RUN"
GROUP = "HEAPTIDE_GROUP"
# The file in the run's folder that names the recording which new processes join; the crate `control` writes it.
WANTED = "wanted.json"
# Separates the parts of a default name. The last two are the first process's ID and start time.
MARK = "~"
_MAX_PROGRAM = 24
_MAX_HOST = 20
_MAX_FOLDER_NAME = 60

# Computed once: a forked child belongs to the run of its parent, even after the parent has ended.
_default = ""
# Whether this process has put the name into the environment, and the reasons to keep it there.
_is_published = False
_reasons: set[str] = set()


def name() -> str:
    """Return the name of the run that this process belongs to. Never raises."""
    return chosen() or default_name()


def chosen() -> str:
    """Return the name in the environment, or an empty string."""
    return (os.environ.get(RUN) or os.environ.get(GROUP) or "").strip()


def is_named() -> bool:
    """Return whether the user or a launcher (MPI, Slurm) named the run. Its processes may then run different scripts.

    A process of the run may also put a default name into the environment; it contains `MARK`, unless a launcher named
    the run. The result does not depend on that.
    """
    known = chosen() or _job_of_launcher()
    return bool(known) and MARK not in known


def default_name() -> str:
    """Return the default name of the run: the launcher's job, or program, host, and first process (ID, start time)."""
    global _default
    if not _default:
        job = _job_of_launcher()
        if job:
            _default = job
            return job
        pid, start, command = _first_process()
        program = safe(program_name(command))[:_MAX_PROGRAM]
        host = safe(os.uname().nodename)
        if len(host) > _MAX_HOST:
            host = f"{host[: _MAX_HOST - 9]}-{checksum(host.encode()):08x}"
        _default = f"{program}-{host}{MARK}{pid}{MARK}{start or 0}"
    return _default


def _first_process() -> tuple[int, str, list[str]]:
    """Return ID, start time and command line of the program's first process."""
    # Usually this process is the first: its parent runs another executable. Then no search is needed.
    try:
        if os.readlink(f"/proc/{os.getppid()}/exe") != os.readlink("/proc/self/exe"):
            with open("/proc/self/stat", "rb") as file:
                start = file.read().rpartition(b")")[2].split()[19].decode()
            return os.getpid(), start, recorded_command(started_with())
    except OSError:
        pass  # the parent belongs to another user
    from heaptide.recording import process_group

    return *process_group.root(), process_group.ProcessGroup.of_this_process().command


def _job_of_launcher() -> str:
    """Return the name of the MPI job or Slurm step, from the environment that all its ranks share; else empty."""
    job = os.environ.get("PMIX_NAMESPACE") or os.environ.get("PALS_APID") or os.environ.get("PMI_JOBID")
    if not job and os.environ.get("SLURM_STEP_ID"):
        job = f"slurm-{os.environ.get('SLURM_JOB_ID', '')}.{os.environ['SLURM_STEP_ID']}"
    return safe(job) if job else ""


def publish(reason: str) -> str:
    """Make processes that this one starts belong to its run, until all reasons are withdrawn. Returns the name."""
    global _is_published
    known = name()
    _reasons.add(reason)
    if not chosen():
        os.environ[RUN] = known
        _is_published = True
    return known


def withdraw(reason: str) -> None:
    """Withdraw one reason of :func:`publish`. Without any reason, processes started later do not belong to the run."""
    global _is_published
    _reasons.discard(reason)
    if _is_published and not _reasons:
        os.environ.pop(RUN, None)
        _is_published = False


def folder_name(run: str) -> str:
    """Return a name for a folder of the run."""
    plain = safe(run)
    if len(plain.encode()) <= _MAX_FOLDER_NAME and plain == run:
        return plain
    kept = plain.encode()[: _MAX_FOLDER_NAME - 9].decode(errors="ignore")
    return f"{kept}-{checksum(os.fsencode(run)):08x}" if len(plain) > len(kept) else plain


def checksum(name: bytes) -> int:
    """Return a 32-bit hash (FNV-1a). `zlib` would load a library, which an address-space limit may prevent."""
    value = 0x811C9DC5
    for byte in name:
        value = (value ^ byte) * 0x01000193 & 0xFFFF_FFFF
    return value


def socket_folder_name(run: str) -> str:
    """Return a name for the folder of the run's sockets: short, because a socket's path has at most 107 bytes."""
    parts = run.split(MARK)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
        return f"{parts[1]}-{parts[2]}"  # unique on this host; `control::group` removes such folders
    return folder_name(run)


def safe(text: str) -> str:
    """Return a similar text that is valid as one component of a path."""
    plain = "".join(letter if letter.isalnum() or letter in "-_.~" else "_" for letter in text)
    return plain.strip(".") or "_"


def inherited_folder() -> str:
    """Return the folder of the run, if another process of the run has published it, or an empty string.

    It is in the folder for sessions. A process that runs another script could not derive that folder from its own name.
    """
    from heaptide.settings import RUN_FOLDER

    folder = os.environ.get(RUN_FOLDER, "")
    return folder if os.path.isabs(folder) else ""


def is_wanted() -> bool:
    """Return whether this process must join a recording of its run. Takes one system call."""
    folder = inherited_folder()
    return bool(folder) and os.path.exists(os.path.join(folder, WANTED))
