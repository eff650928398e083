"""Tests tracers and jobs in process pools: pickle, cloudpickle, and joblib's real workers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.job_program import run

KEPT = 300_000
TOLERANCE = 20_000


def test_job_pickles_as_its_numbers(tmp_path: Path) -> None:
    same, text, refused, running = run(
        tmp_path,
        """
        import pickle
        tracer = leaks.JobTracer()
        with tracer.job("work") as job:
            keep_three()
            inside = pickle.loads(pickle.dumps(job))
        copy = pickle.loads(pickle.dumps(job))
        tracer.close()
        same = copy.as_dict() == job.as_dict() and copy.report() == job.report()
        try:
            copy.settle()
        except RuntimeError as error:
            refused = str(error)
        print(json.dumps([same, repr(copy), refused, repr(inside)]))
        """,
    )
    assert same is True
    # The copy that was made inside the job is part of it; Python 3.10 also keeps a frame of each function.
    assert re.fullmatch(r"<job work: 30\d,\d{3} bytes retained>", text)
    assert "another process" in refused
    assert running == "<job work: running>"


def test_unpickled_tracer_is_one_object_in_each_process(tmp_path: Path) -> None:
    is_same, options, children = run(
        tmp_path,
        """
        import concurrent.futures, multiprocessing, os, pickle
        tracer = leaks.JobTracer(trace_type="list", output_dir="drawn", max_memory=5000, report=sys.stdout, collect=False)
        def of(tracer):
            return [os.getpid(), id(tracer), tracer.trace_type, tracer.output_dir, tracer.max_memory, tracer._collect]
        if __name__ == "__main__":
            is_same = pickle.loads(pickle.dumps(tracer)) is tracer
            context = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                children = [list(pool.map(of, [tracer]))[0] for _ in range(3)]
            print(json.dumps([is_same, of(tracer)[2:], children]))
        """,
    )
    assert is_same is True
    assert len({tuple(child[:2]) for child in children}) == 1
    assert all(child[2:] == options for child in children)


@pytest.mark.once
@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_traced_function_runs_in_joblib_workers(tmp_path: Path, backend: str) -> None:
    pytest.importorskip("joblib")
    results, n_processes = run(
        tmp_path,
        f"""
        import os
        import joblib
        tracer = leaks.JobTracer()
        JOBS = []

        @tracer.traced
        def task(number):
            keep_three()
            return number

        def measured(number):
            with tracer.job("block") as job:
                keep_three()
            return task(number), job, os.getpid()

        if __name__ == "__main__":
            work = joblib.Parallel(n_jobs=2, backend={backend!r})
            results = work(joblib.delayed(measured)(number) for number in range(6))
            rows = [[number, job.name, job.retained_bytes] for number, job, _ in results]
            print(json.dumps([rows, len({{pid for *_, pid in results}} - {{os.getpid()}})]))
        """,
    )
    assert [number for number, _, _ in results] == list(range(6))
    assert n_processes >= 1
    for _, name, retained in results:
        assert name == "block" and 0 <= retained - KEPT <= TOLERANCE


@pytest.mark.once
def test_traced_function_survives_cloudpickle_in_a_fresh_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    rows = run(
        tmp_path,
        """
        import subprocess
        import cloudpickle
        reported = []
        tracer = leaks.JobTracer(report=lambda job: print(json.dumps([job.name, job.retained_bytes])))
        kept = []

        @tracer.traced
        def task():
            kept.append(bytearray(100_000))

        code = "import pickle, sys; task = pickle.load(sys.stdin.buffer); task(); task()"
        done = subprocess.run([sys.executable, "-c", code], input=cloudpickle.dumps(task), capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        print(json.dumps([json.loads(line) for line in done.stdout.splitlines()]))
        """,
    )
    assert [name for name, _ in rows] == ["task", "task"]
    assert all(100_000 <= retained <= 130_000 for _, retained in rows)
