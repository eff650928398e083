"""Tests labels and the name of the run: where they come from, and that files, reports and pages contain them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from heaptide import labels, platforms
from heaptide.recording import program, runs
from support.commands import heaptide, python
from support.controlled_program import ControlledProgram, page_data

pytestmark = pytest.mark.once


def processes(*files: Path) -> list[dict[str, Any]]:
    """Return the processes of a report."""
    found: list[dict[str, Any]] = json.loads(heaptide("stats", "--json", *files).stdout)["heaptide"]["processes"]
    return found


def test_labels_of_the_environment_and_of_the_program_are_in_every_file(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import heaptide\n"
        "heaptide.label(queue='mail', version=2, zone='a')\n"
        "with heaptide.Tracker('job.tide'):\n"
        "    heaptide.label(queue='sms', late='yes', zone=None)\n"
        "    block = bytes(1_000_000)\n"
        "    heaptide.heap_snapshot('job.heap')\n"
        "print(heaptide.labels.current())\n"
    )
    done = python("job.py", cwd=tmp_path, HEAPTIDE_LABELS="service=shop, version=1.4", HEAPTIDE_RUN="nightly-42")
    expected = {"service": "shop", "version": "2", "queue": "sms", "late": "yes"}
    assert done.stdout == f"{expected}\n" and done.stderr == ""
    (process,) = processes(tmp_path / "job.tide")
    assert (process["labels"], process["run"], process["title"]) == (expected, "nightly-42", "job.py")
    heaptide("heap", "explore", "-o", tmp_path / "heap.html", tmp_path / "job.heap")
    head = json.loads(page_data((tmp_path / "heap.html").read_text()))["head"]
    assert (head["labels"], head["run"], head["title"]) == (expected, "nightly-42", "job.py")
    heaptide("flamegraph", "-o", tmp_path / "page.html", tmp_path / "job.tide")
    (of_page,) = json.loads(page_data((tmp_path / "page.html").read_text()))["head"]["processes"]
    assert of_page["labels"] == expected and of_page["shown"].endswith(" (job.py)")


def test_forked_child_has_its_own_labels(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import heaptide, os\n"
        "with heaptide.Tracker('job.tide', follow_fork=True):\n"
        "    heaptide.label(role='parent')\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        heaptide.label(role='child')\n"
        "        block = bytes(1_000_000)\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    )
    python("job.py", cwd=tmp_path)
    parent, child = processes(tmp_path)
    assert (parent["title"], child["title"]) == ("parent", "child")
    assert parent["run"] == child["run"] and parent["run"].startswith("job.py-")
    rows = heaptide("summary", "--total", "--by", "process", "--label", "role=ch*", tmp_path).stdout
    assert f"process {child['pid']} (child)" in rows and str(parent["pid"]) not in rows


def test_status_shows_labels_that_the_program_sets(program: ControlledProgram) -> None:
    assert program.get("status").json()["labels"] == {}
    program.evaluate("heaptide.label(queue='mail')")
    status = program.get("status").json()
    assert status["labels"] == {"queue": "mail"} and status["title"] == "job.py"
    assert status["processes"][0]["labels"] == {"queue": "mail"}
    assert status["run"].startswith("job.py-") and f"~{program.process.pid}~" in status["run"]


def test_invalid_labels_are_reported_in_one_line_and_ignored(tmp_path: Path) -> None:
    done = python("-c", "pass", cwd=tmp_path, HEAPTIDE_LABELS="shop", HEAPTIDE="off")
    assert done.returncode == 0 and done.stderr.count("\n") == 1 and "HEAPTIDE_LABELS" in done.stderr


def test_redacted_labels_are_not_stored(tmp_path: Path) -> None:
    code = "import heaptide\nwith heaptide.Tracker('job.tide'): block = bytes(1_000_000)"
    python("-c", code, cwd=tmp_path, HEAPTIDE_LABELS="password=hunter2,queue=mail", HEAPTIDE_REDACT="*password*")
    assert b"hunter2" not in (tmp_path / "job.tide").read_bytes()
    (process,) = processes(tmp_path / "job.tide")
    assert process["labels"]["queue"] == "mail"


def test_long_and_numerous_labels_are_cut(tmp_path: Path) -> None:
    code = (
        "import heaptide\n"
        "heaptide.label(**{f'k{n}': 'v' * 1000 for n in range(100)})\n"
        "with heaptide.Tracker('job.tide'):\n"
        "    heaptide.label(k0='\\n'.join('w' * 100))\n"
        "    block = bytes(1_000_000)\n"
    )
    assert python("-c", code, cwd=tmp_path).stderr == ""
    (process,) = processes(tmp_path / "job.tide")
    assert len(process["labels"]) == labels.MAX_LABELS
    assert process["labels"]["k1"] == "v" * 200 and process["labels"]["k0"].startswith("w w w")


@pytest.mark.parametrize(
    ("line", "is_child", "expected"),
    [
        ("celery -A tasks worker -Q mail,sms", True, {"role": "celery worker", "queue": "mail,sms"}),
        ("celery -A tasks worker", False, {"role": "celery main process"}),
        ("-m celery -A tasks worker --pool=threads", False, {"role": "celery worker"}),
        ("celery -A tasks beat", False, {"role": "celery beat"}),
        ("gunicorn app:app", False, {"role": "gunicorn arbiter"}),
        ("gunicorn app:app", True, {"role": "gunicorn worker"}),
        ("uvicorn app:app", False, {"role": "uvicorn worker"}),
        ("-m uvicorn --workers 2 app:app", False, {"role": "uvicorn supervisor"}),
        ("rq worker high low", True, {"role": "rq work-horse"}),
        ("dask-worker tcp://127.0.0.1:8786", False, {"role": "dask nanny"}),
        ("-m distributed.cli.dask_worker x", True, {"role": "dask worker"}),
        ("dask scheduler", False, {"role": "dask scheduler"}),
        ("-m joblib.externals.loky.backend.popen_loky_posix", False, {"role": "loky worker"}),
        ("-m loky.backend.popen_loky_posix", False, {"role": "loky worker"}),
        ("airflow scheduler -n 3", True, {"component": "scheduler"}),
        ("job.py --celery", False, {}),
        ("", False, {}),
    ],
)
def test_platforms_know_the_roles_of_their_processes(line: str, is_child: bool, expected: dict[str, str]) -> None:
    assert platforms.labels_of(line.split(), is_child) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("heaptide run -q -f -o x.tide celery -A s worker", ["celery", "-A", "s", "worker"]),
        ("heaptide run -qfo x.tide -p 7001 --sample --interval 5 celery", ["celery"]),
        ("heaptide run -ox.tide --color=never -- celery -o y", ["celery", "-o", "y"]),
        ("-m heaptide run -fm celery worker", ["-m", "celery", "worker"]),
        ("heaptide run -mcelery worker", ["-m", "celery", "worker"]),
        ("heaptide run -c pass -o", ["-c", "pass", "-o"]),
        ("heaptide serve job.py", ["heaptide", "serve", "job.py"]),
        ("job.py run -q", ["job.py", "run", "-q"]),
        ("heaptide run", []),
    ],
)
def test_program_of_a_run_command_is_found(command: str, expected: list[str]) -> None:
    assert program.command_words(program.recorded_command(["python", *command.split()])) == expected


def test_all_options_of_run_with_a_value_are_known() -> None:
    short, long = set(), set()
    for line in heaptide("run", "--help").stdout.splitlines():
        option = re.match(r" +(?:-(\w))?(?:, )?(--[\w-]+)? <", line)
        if option:
            short.add(option[1])
            long.add(option[2])
    assert {letter for letter in short if letter} == {*program._RUN_LETTERS_WITH_VALUE, "m", "c"}
    assert {name for name in long if name} == set(program._RUN_OPTIONS_WITH_VALUE)


def test_worker_under_run_has_its_role_and_names_the_run(tmp_path: Path) -> None:
    (tmp_path / "rq").write_text(
        "import multiprocessing, os\n"
        "def work(): kept.append(bytes(1_000_000))\n"
        "kept = []\n"
        "if __name__ == '__main__':\n"
        "    work()\n"
        "    for method in 'fork', 'spawn':\n"
        "        child = multiprocessing.get_context(method).Process(target=os.getpid)\n"
        "        child.start()\n"
        "        child.join()\n"
    )
    heaptide("run", "-q", "--follow-fork", "-o", "x.tide", "rq", "worker", cwd=tmp_path)
    found = processes(tmp_path)
    assert [one["title"] for one in found] == ["rq worker", "rq work-horse", "rq work-horse"]
    assert len({one["run"] for one in found}) == 1 and found[0]["run"].startswith("rq-")


def test_ranks_of_one_job_are_one_run(tmp_path: Path) -> None:
    code = "import heaptide\nwith heaptide.Tracker(f'{heaptide.labels.current()[\"rank\"]}.tide'): block = bytes(1_000_000)"
    for rank in ("0", "1"):
        python("-c", code, cwd=tmp_path, OMPI_COMM_WORLD_RANK=rank, PMIX_NAMESPACE="prterun-web-1-4711@1")
    first, second = processes(tmp_path)
    assert first["run"] == second["run"] and first["session"] != second["session"]
    assert (first["title"], second["title"]) == ("-c, rank 0", "-c, rank 1")
    assert "different runs" not in heaptide("stats", tmp_path).stdout
    (tmp_path / "2.tide").write_bytes((tmp_path / "1.tide").read_bytes())
    python("-c", code, cwd=tmp_path, HEAPTIDE_RANK="3")
    assert "2 different runs" in heaptide("stats", tmp_path).stdout


def test_scripts_of_one_launchers_job_are_one_program_before_and_after_the_run_is_published(tmp_path: Path) -> None:
    code = (
        "from heaptide.recording import process_group, runs\n"
        "for _ in range(2):\n"
        "    print(process_group.ProcessGroup.of_this_process().key)\n"
        "    runs.publish('a test')\n"
    )
    launchers: tuple[dict[str, str], ...] = (
        {"PMIX_NAMESPACE": "prterun-web-1-4711@1"},
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
        {},
    )
    keys: list[set[str]] = []
    for env in launchers:
        for script in ("master.py", "worker.py"):
            (tmp_path / script).write_text(code)
            keys.append(set(python(script, cwd=tmp_path, **env).stdout.split()))
    assert [len(each) for each in keys] == [1] * 6
    # Without a launcher, the two scripts are two programs.
    assert keys[0] == keys[1] and keys[2] == keys[3] and len(set().union(*keys)) == 4


def test_spawned_children_inherit_the_run_that_heaptide_group_also_names(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import subprocess, sys\n"
        "if len(sys.argv) == 1:\n"
        "    subprocess.run([sys.executable, 'job.py', 'child'], check=True)\n"
        "block = bytes(1_000_000)\n"
    )
    for folder, env in (("default", {}), ("alias", {"HEAPTIDE_GROUP": "nightly"})):
        (tmp_path / folder).mkdir()
        out = str(tmp_path / folder / "x.tide")
        python("job.py", cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_OUT=out, HEAPTIDE_QUIET="yes", **env)
        names = {one["run"] for one in processes(tmp_path / folder)}
        assert len(names) == 1 and (names == {"nightly"} or not env)


def test_names_of_runs_become_safe_names_of_folders() -> None:
    assert runs.folder_name("nightly-42") == "nightly-42"
    assert "/" not in runs.folder_name("../../etc") and runs.folder_name("..") not in ("..", ".")
    assert len(runs.folder_name("x" * 300)) <= 60
    assert runs.folder_name("x" * 300) != runs.folder_name("x" * 301)
    assert runs.socket_folder_name("etl.py-web-1~4711~883") == "4711-883"
