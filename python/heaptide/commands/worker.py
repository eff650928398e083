"""``heaptide worker``: runs a job repeatedly and reports what each run leaks."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import json
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, TypedDict

from heaptide import platforms, settings
from heaptide.leaks.tracer import JobTracer
from heaptide.messages import print_message, printable, reason
from heaptide.serving import loading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_JOBS = 10


class Plan(TypedDict):
    """The arguments of the command. None means that the settings decide."""

    job: str
    params: str | None
    trace_memory: bool | None
    trace_memory_type: str | None
    trace_memory_output_dir: str | None
    greenlets: int | None
    max_jobs: int | None
    max_memory: int | None


class Call:
    """One job to run: its name, its function and its arguments."""

    __slots__ = ("function", "is_async", "name", "params")

    def __init__(self, name: str, function: Callable[..., Any], params: dict[str, Any]) -> None:
        self.name = name
        self.function = function
        self.params = params
        # An instance with an asynchronous `__call__` is no coroutine function itself.
        self.is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


class NoSuchJob(Exception):
    """The job cannot be found; the message contains the reason."""


def work(plan: Plan) -> int:
    """Run the jobs. Returns the exit code: 0, or 1 if a job failed or was not found."""
    chosen = settings.load()
    for name in plan:
        if plan[name] is None and hasattr(chosen, name):  # type: ignore[literal-required]
            plan[name] = getattr(chosen, name)  # type: ignore[literal-required]
    n_at_a_time = plan["greenlets"] or 1
    has_gevent = n_at_a_time > 1 and _patch_for_greenlets()
    try:
        calls, is_file = _calls(plan)
    except NoSuchJob as error:
        print_message(str(error))
        return 1
    traces = bool(plan["trace_memory"] or plan["trace_memory_type"])
    tracer = JobTracer(
        plan["trace_memory_type"] or None,
        plan["trace_memory_output_dir"],
        plan["max_memory"] or None,
        report=sys.stdout if traces else None,
    )
    n_jobs = plan["max_jobs"] or (len(calls) if is_file else DEFAULT_JOBS)
    # Without a limit or reports, nothing reads the accounts.
    worker = Worker(calls, n_jobs, tracer if traces or plan["max_memory"] else None)
    with worker.ending_by_signals():
        worker.run(n_at_a_time, has_gevent)
    if worker.tracer is not None:
        if traces:
            print(printable(tracer.report()), flush=True)
        tracer.close()
    return 1 if worker.n_failed else 0


class Worker:
    """Runs jobs until all are done, or until a signal or the tracer stops it."""

    def __init__(self, calls: list[Call], n_jobs: int, tracer: JobTracer | None) -> None:
        self.tracer = tracer
        self.n_failed = 0
        self._calls = calls
        self._next = iter(itertools.islice(itertools.cycle(calls), n_jobs))
        self._lock = threading.Lock()
        self._is_asked_to_stop = False

    def run(self, n_at_a_time: int, has_gevent: bool) -> None:
        """Run all jobs, `n_at_a_time` concurrently: as tasks if they are async, else in greenlets or threads."""
        if any(call.is_async for call in self._calls):
            import asyncio

            asyncio.run(self._run_tasks(n_at_a_time))
        elif n_at_a_time == 1:
            self._run_in_turn()
        elif has_gevent:
            gevent = importlib.import_module("gevent")
            gevent.joinall([gevent.spawn(self._run_in_turn) for _ in range(n_at_a_time)])
        else:
            threads = [threading.Thread(target=self._run_in_turn, name=f"worker-{n}") for n in range(n_at_a_time)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    @contextlib.contextmanager
    def ending_by_signals(self) -> Iterator[None]:
        """Let a signal stop the worker after the current jobs, and the same signal again stop it at once."""
        before: dict[int, Any] = {}

        def stop(number: int, _frame: object) -> None:
            self._is_asked_to_stop = True
            print_message("stopping after the current jobs")
            signal.signal(number, before[number])

        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM):
                # A handler that C code installed cannot be installed again.
                if signal.getsignal(each) is not None:
                    before[each] = signal.signal(each, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self) -> Call | None:
        """Return the next job to run."""
        if self._is_asked_to_stop or (self.tracer is not None and self.tracer.should_stop):
            return None
        with self._lock:
            return next(self._next, None)

    def _run_in_turn(self) -> None:
        while (call := self._take()) is not None:
            try:
                if self.tracer is None:
                    call.function(**call.params)
                else:
                    with self.tracer.job(call.name):
                        call.function(**call.params)
            # sys.exit() in a job ends that job, not the worker.
            except (Exception, SystemExit) as error:
                self._failed(call, error)
            self._settle()

    async def _run_tasks(self, n_at_a_time: int) -> None:
        import asyncio

        await asyncio.gather(*[asyncio.create_task(self._run_in_turn_async()) for _ in range(n_at_a_time)])

    async def _run_in_turn_async(self) -> None:
        while (call := self._take()) is not None:
            try:
                if self.tracer is None:
                    await _result(call)
                else:
                    with self.tracer.job(call.name):
                        await _result(call)
            except (Exception, SystemExit) as error:
                self._failed(call, error)
            self._settle()

    def _failed(self, call: Call, error: BaseException) -> None:
        with self._lock:
            self.n_failed += 1
        print_message(f"job {call.name} failed")
        traceback.print_exception(type(error), error, error.__traceback__)

    def _settle(self) -> None:
        """Measure a job that failed, now that its exception has been handled."""
        if self.tracer is not None:
            self.tracer.settle()


async def _result(call: Call) -> None:
    if call.is_async:
        await call.function(**call.params)
    else:
        call.function(**call.params)


def _patch_for_greenlets() -> bool:
    """Apply gevent's patches before the job is imported. Returns False if gevent is not installed."""
    try:
        monkey = importlib.import_module("gevent.monkey")
    except ImportError:
        print_message("gevent is not installed, so jobs run in threads instead of greenlets")
        return False
    monkey.patch_all()
    return True


def _calls(plan: Plan) -> tuple[list[Call], bool]:
    """Return the jobs to run, and whether a file lists them."""
    job_name = plan["job"]
    if job_name.endswith(".jsonl"):
        return _read_list(job_name), True
    return [_call(job_name, _params(plan["params"], "--params"))], False


def _read_list(path: str) -> list[Call]:
    calls = []
    try:
        with open(path, encoding="utf-8") as file:
            lines = [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    except OSError as error:
        raise NoSuchJob(f"{path} cannot be read ({reason(error)}): name a file with one job in each line") from None
    for number, line in lines:
        location = f"{path}:{number}"
        row = _params(line, location)
        if not isinstance(row.get("path"), str) or not isinstance(row.get("params", {}), dict):
            raise NoSuchJob(f'{location} is not a job: write {{"path": "module:function", "params": {{}}}}')
        calls.append(_call(row["path"], row.get("params", {})))
    if not calls:
        raise NoSuchJob(f"{path} lists no job: write one in each line")
    return calls


def _params(text: str | None, source: str) -> dict[str, Any]:
    try:
        params = json.loads(text or "{}")
    except ValueError as error:
        raise NoSuchJob(f"{source} is not JSON ({error}): write an object such as {{}}") from None
    if not isinstance(params, dict):
        raise NoSuchJob(f"{source} is not a JSON object: write names and values, such as {{}}")
    return params


def _call(job_name: str, params: dict[str, Any]) -> Call:
    """Find a job by `module:name`, `module.name` or `file.py:name`."""
    path, colon, name = job_name.partition(":")
    if path.endswith(".py"):
        try:
            program = loading.load(path, name or None)
        except loading.NoJob as error:
            raise NoSuchJob(str(error).replace("--entrypoint", "a colon and its name")) from None
        except Exception as error:
            raise NoSuchJob(f"{path} cannot be imported: {reason(error)}") from None
        return Call(name or os.path.splitext(os.path.basename(path))[0], program.function, params)
    if not colon:
        path, _, name = job_name.rpartition(".")
    if not path or not name:
        raise NoSuchJob(f"{job_name} names no job: write module:function, or the path of a Python file")
    if "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(path)
    except ImportError as error:
        raise NoSuchJob(f"{path} cannot be imported: {reason(error)}") from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise NoSuchJob(f"{path} has no {name}: write module:function")
    return _callable(job_name, found, params)


def _callable(job_name: str, found: Any, params: dict[str, Any]) -> Call:
    if not inspect.isclass(found):
        if not callable(found):
            raise NoSuchJob(f"{job_name} cannot be called: name a function, or a class with a method perform or run")
        return Call(job_name, found, params)
    made: Any = found()
    if callable(getattr(made, "perform", None)):
        return Call(job_name, made.perform, params)
    for platform in platforms.all_platforms():
        for method, parameter in platform.task_methods.items():
            if callable(getattr(made, method, None)):
                return Call(job_name, getattr(made, method), {parameter: params})
    raise NoSuchJob(f"{job_name} has no method perform or run: name a function, or a class with one of them")
