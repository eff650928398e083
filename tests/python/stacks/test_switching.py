"""Tests the stacks of generators, coroutines, greenlets and threads, which suspend and resume their frames."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from support.call_stacks import Recording


def test_generator_has_the_frames_of_its_current_caller(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def produce():
            bytes(1_000_001)  # @first
            yield
            bytes(1_000_002)  # @second
            yield
            bytes(1_000_003)  # @third
            try:
                yield
            finally:
                bytes(1_000_004)  # @closed

        def shallow(generator):
            next(generator)  # @shallow

        def deep(generator, depth):
            if depth:
                return deep(generator, depth - 1)  # @deep
            generator.send(None)  # @send

        def stop(generator):
            generator.close()  # @close

        generator = produce()
        shallow(generator)  # @one
        deep(generator, 3)  # @two
        shallow(generator)  # @three
        stop(generator)  # @four
    """)
    assert recorded.stack(1_000_001) == ["<module>@one", "shallow@shallow", "produce@first"]
    assert recorded.stack(1_000_002) == ["<module>@two"] + ["deep@deep"] * 3 + ["deep@send", "produce@second"]
    assert recorded.stack(1_000_003) == ["<module>@three", "shallow@shallow", "produce@third"]
    assert recorded.stack(1_000_004) == ["<module>@four", "stop@close", "produce@closed"]


def test_alternating_generators_keep_separate_stacks(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def one(base):
            for n in range(50):
                bytes(base + n)  # @one
                yield

        def other(base):
            for n in range(50):
                bytes(base + n)  # @other
                yield

        def left(first, second):
            next(first); next(second)  # @left

        def right(first, second):
            left(second, first)  # @right

        a, b = one(1_000_000), other(2_000_000)
        for turn in range(25):
            left(a, b)  # @straight
            right(a, b)  # @crossed
    """)
    for n in range(50):
        callers = ["<module>@crossed", "right@right", "left@left"] if n % 2 else ["<module>@straight", "left@left"]
        assert recorded.stack(1_000_000 + n) == [*callers, "one@one"]
        assert recorded.stack(2_000_000 + n) == [*callers, "other@other"]


def test_delegating_generators_and_generator_expressions_have_complete_chains(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def leaf(n):
            yield len(bytes(n))  # @leaf

        def branch(n):
            yield from leaf(n)  # @branch
            yield from (len(bytes(m)) for m in [n + 1])  # @expression

        def root(n):
            yield from branch(n)  # @root

        def work():
            for _ in root(1_000_001):  # @for
                pass
            return sum(len(bytes(n)) for n in (1_000_003,))  # @sum

        work()  # @call
    """)
    chain = ["<module>@call", "work@for", "root@root"]
    assert recorded.stack(1_000_001) == [*chain, "branch@branch", "leaf@leaf"]
    assert recorded.stack(1_000_002) == [*chain, "branch@expression", "<genexpr>@expression"]
    assert recorded.stack(1_000_003) == ["<module>@call", "work@sum", "<genexpr>@sum"]


def test_awaited_coroutines_and_interleaved_tasks_have_separate_chains(record: Callable[..., Recording]) -> None:
    recorded = record("""
        import asyncio

        async def leaf(n):
            await asyncio.sleep(0)
            return bytes(n)  # @leaf

        async def middle(n):
            return await leaf(n)  # @middle

        async def task(base):
            for n in range(5):
                bytes(base + n)  # @task
                await middle(base + 10 + n)  # @await

        async def stream(n):
            yield bytes(n)  # @stream
            await asyncio.sleep(0)
            yield bytes(n + 1)  # @resumed

        async def main():
            await asyncio.gather(task(1_000_000), task(2_000_000), middle(3_000_000))
            async for _ in stream(4_000_000):  # @for
                pass
            return [len(block) async for block in stream(5_000_000)]  # @comprehension

        asyncio.run(main())  # @run
    """)
    run = "<module>@run"
    for base in (1_000_000, 2_000_000):
        for n in range(5):
            assert recorded.script_stack(base + n) == [run, "task@task"]
            assert recorded.script_stack(base + 10 + n) == [run, "task@await", "middle@middle", "leaf@leaf"]
    assert recorded.script_stack(3_000_000) == [run, "middle@middle", "leaf@leaf"]
    assert recorded.script_stack(4_000_000) == [run, "main@for", "stream@stream"]
    assert recorded.script_stack(4_000_001) == [run, "main@for", "stream@resumed"]
    inline = [] if sys.version_info >= (3, 12) else ["<listcomp>@comprehension"]
    assert recorded.script_stack(5_000_000) == [run, "main@comprehension", *inline, "stream@stream"]
    assert recorded.script_stack(5_000_001) == [run, "main@comprehension", *inline, "stream@resumed"]
    assert [call.name for call in recorded.of(1_000_000)[0].stack][:2] == ["<module>", "run"]
    assert [call.name for call in recorded.of(1_000_000)[0].stack][-2:] == ["_run", "task"]


def test_alternating_greenlets_keep_separate_stacks(record: Callable[..., Recording]) -> None:
    pytest.importorskip("greenlet")
    recorded = record("""
        import greenlet

        def deep(n, base, depth):
            if depth:
                return deep(n, base, depth - 1)  # @deeper
            bytes(base + n)  # @deep

        def left(base):
            for n in range(20):
                deep(n, base, 10)  # @left
                other.switch()  # @to_right
                bytes(base + 100 + n)  # @back

        def right(base):
            for n in range(20):
                bytes(base + n)  # @right
                one.switch()  # @to_left

        one = greenlet.greenlet(left)
        other = greenlet.greenlet(lambda: right(2_000_000))  # @lambda

        def main(depth):
            if depth:
                return main(depth - 1)  # @main
            one.switch(1_000_000)  # @switch

        main(5)  # @call
        bytes(3_000_000)  # @after
    """)
    for n in range(20):
        assert recorded.stack(1_000_000 + n)[-12:] == ["left@left"] + ["deep@deeper"] * 10 + ["deep@deep"]
        assert recorded.stack(1_000_100 + n)[-1] == "left@back"
        assert recorded.stack(2_000_000 + n)[-2:] == ["<lambda>@lambda", "right@right"]
        # The frames of a greenlet start with its function and do not include those of its parent.
        assert len(recorded.stack(1_000_000 + n)) == 12
        assert len(recorded.stack(1_000_100 + n)) == 1
        assert len(recorded.stack(2_000_000 + n)) == 2
    assert recorded.stack(3_000_000) == ["<module>@after"]


def test_gevent_tasks_and_pools_have_only_the_frames_of_their_greenlet(record: Callable[..., Recording]) -> None:
    pytest.importorskip("gevent")
    recorded = record("""
        import gevent
        import gevent.pool

        def leaf(n):
            gevent.sleep(0)
            return len(bytes(n))  # @leaf

        def task(base):
            for n in range(5):
                leaf(base + n)  # @task
            return base

        def item(n):
            leaf(n)  # @item

        gevent.joinall([gevent.spawn(task, base) for base in (1_000_000, 2_000_000, 3_000_000)])
        list(gevent.pool.Pool(2).imap(item, range(4_000_000, 4_000_010)))
    """)
    for base in (1_000_000, 2_000_000, 3_000_000):
        for n in range(5):
            assert recorded.script_stack(base + n) == ["task@task", "leaf@leaf"]
    for n in range(4_000_000, 4_000_010):
        assert recorded.script_stack(n) == ["item@item", "leaf@leaf"]


def test_threads_have_separate_stacks_and_numbers(record: Callable[..., Recording]) -> None:
    recorded = record("""
        import threading

        def leaf(n):
            bytes(n)  # @leaf

        def work(base, turn, next_turn):
            for n in range(20):
                turn.acquire()
                leaf(base + n)  # @work
                next_turn.release()

        locks = [threading.Semaphore(1), threading.Semaphore(0), threading.Semaphore(0)]
        threads = [
            threading.Thread(target=work, args=(base, locks[i], locks[(i + 1) % 3]))
            for i, base in enumerate([1_000_000, 2_000_000, 3_000_000])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    """)
    numbers = set()
    for base in (1_000_000, 2_000_000, 3_000_000):
        found = [recorded.of(base + n) for n in range(20)]
        assert all(recorded.script_stack(base + n) == ["work@work", "leaf@leaf"] for n in range(20))
        assert [call.name for call in found[0][0].stack] == ["_bootstrap", "_bootstrap_inner", "run", "work", "leaf"]
        assert len({one.thread for [one] in found}) == 1
        numbers.add(found[0][0].thread)
    assert len(numbers) == 3
