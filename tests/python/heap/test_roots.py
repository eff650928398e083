"""Tests the roots of the heap walk: local variables, constants of running code, interned strings and types."""

from __future__ import annotations

from pathlib import Path

from support.json_program import run_json


def test_local_variables_of_running_functions_are_named_roots(tmp_path: Path) -> None:
    paths = run_json(
        tmp_path,
        """
        import json, threading
        from heap_view import heap_now

        def work(begun, may_end, ids):
            in_a_thread = object()
            ids.append(id(in_a_thread))
            begun.set()
            may_end.wait()

        def generator():
            in_a_generator = object()
            yield id(in_a_generator)

        def main():
            begun, may_end, ids = threading.Event(), threading.Event(), []
            thread = threading.Thread(target=work, args=(begun, may_end, ids))
            thread.start()
            begun.wait()
            here = object()
            held = generator()
            ids += [id(here), next(held)]
            view = heap_now()
            may_end.set()
            thread.join()
            return [str(view.at([one]).paths(1)) for one in ids]

        print(json.dumps(main()))
        """,
    )
    for path, variable in zip(paths, ["in_a_thread", "here", "in_a_generator"], strict=True):
        assert variable in path, path


def test_constants_of_the_running_script_are_reached_through_its_code(tmp_path: Path) -> None:
    paths = run_json(
        tmp_path,
        """
        import json
        from heap_view import heap_now

        text = b"a constant that only the code of this script has"
        numbers = (2.5e7, 3.5e7, "inside a constant")
        ids = [id(text), id(numbers), id(numbers[2])]
        del text, numbers
        view = heap_now()
        print(json.dumps(["".join(steps) for one in ids for _, steps in view.at([one]).paths(2)[1]]))
        """,
    )
    assert len(paths) == 3
    for path in paths:
        # The parser, which is C code, also keeps them until the script ends.
        assert "<frame thread 1/<module>" in path, path
        assert ".co_consts[" in path, path
        assert "held by C code" not in path, path


def test_interned_strings_held_only_by_their_table_are_found(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        """
        import gc, json, sys
        import heaptide
        from heap_view import heap_now

        def is_immortal(text):
            # An object with such a large reference count is never freed.
            return sys.getrefcount(text) > 1 << 28

        def make():
            ring = [sys.intern("held by garbage " + str(4.25))]
            ring.append(ring)
            namespace = {}
            exec("a_" + "generated_name = 0", {}, namespace)
            texts = [*namespace, sys.intern("held by nobody " + str(3.25)), ring[0]]
            return [id(text) for text in texts if is_immortal(text)], [id(ring), id(ring[0])]

        gc.disable()
        held = sys.intern("held by a variable " + str(5.25))
        ids, garbage = make()
        view = heap_now()
        is_garbage = [one in view.unreachable().addresses() for one in garbage]
        paths = [["".join(steps) for _, steps in view.at([one]).paths(9)[1]] for one in ids]
        held_paths = ["".join(steps) for _, steps in view.at([id(held)]).paths(9)[1]]
        n_holders = len(view.at([id(held)]).referrers())

        before = heaptide.heap_census()["str"].objects
        for number in range(3000):
            sys.intern("generated again " + str(number))
        grown = heaptide.heap_census()["str"].objects - before
        in_snapshot = len(heap_now().of_kind("str")) - heaptide.heap_census()["str"].objects
        print(json.dumps([list(sys.version_info[:2]), paths, is_garbage, held_paths, n_holders, grown, in_snapshot]))
        """,
    )
    version, paths, is_garbage, held_paths, n_holders, grown, in_snapshot = found
    assert all(len(paths_of_one) == 1 for paths_of_one in paths)
    assert all(path.startswith("<interned strings>.keys()[") for [path] in paths), paths
    # A path names the table only if nothing else refers to the string.
    assert held_paths == ["sys.modules['__main__'].__dict__['held']"]
    assert n_holders == 1
    assert abs(in_snapshot) < 100
    if version == [3, 12]:
        assert len(paths) == 3, paths
        assert is_garbage == [True, False]
        assert 3000 <= grown < 3100
    else:
        # In these versions, interned strings without references are freed; 3.13 keeps names of compiled code.
        assert grown < 100
        assert is_garbage == [True, True]
        assert version > [3, 13] or len(paths) == (version == [3, 13]), paths


def test_static_types_are_named_roots(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        """
        import json
        from heap_view import heap_now

        view = heap_now()
        # A builtin type is itself a root.
        print(json.dumps([view.at([id(one)]).paths(5)[1] for one in (int, dict, type(len))]))
        """,
    )
    for paths, name in zip(found, ("int", "dict", "builtin_function_or_method"), strict=True):
        assert any(f"<type {name}>" in str(path) for path in paths), paths
