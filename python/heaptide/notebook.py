"""``%load_ext heaptide``: magics for IPython and Jupyter.

``%memit`` and ``%mprun`` are memory_profiler's; ``%%heaptide`` records a cell and shows its flame graph.
"""

from __future__ import annotations

import ast
import contextlib
import html
import inspect
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from heaptide import _native, command_process, private_files
from heaptide.commands.lines import Accumulated
from heaptide.lines import report
from heaptide.lines.brackets import bytes_with_children
from heaptide.lines.usage import memory_usage
from heaptide.messages import reason
from heaptide.recording.tracker import Tracker

MEMIT_HELP = """Measure the memory of a statement; as a cell magic, of a cell, with the first line as setup.

Usage: %memit [-r N] [-t S] [-i S] [-c] [-o] [-q] statement

  -r N  repeat N times, and report the largest (default 1)
  -t S  ignored: sampling stops when the statement ends
  -i S  sample every S seconds (default 0.1)
  -c    add the memory of children
  -o    return a MemitResult
  -q    print nothing
"""

MPRUN_HELP = """Run a statement and report functions line by line. They may be defined in the notebook.

Usage: %mprun -f function [-f function ...] [-T file] [-r] [-c] statement

  -f F  a function to report
  -T F  also write the report to a file
  -r    return the measurements
  -c    add the memory of children
"""

HEAPTIDE_HELP = """Record a cell and show its flame graph. The cell may await.

Usage: %%heaptide [--objects] [--leaks] [--short] [--page] [-o file.html] [--height N]

  --objects   record every Python object, not only memory from the C library
  --leaks     show memory that is allocated at the end, not at the peak
  --short     show a small table instead of the page, as for a cell with a peak below 1 MB
  --page      show the page also for such a cell
  -o FILE     keep the page in a file
  --height N  pixels of the frame (default 600)
"""


_LONG_OPTIONS = ("--objects", "--leaks", "--short", "--page", "--height")
# Cells with a lower peak get the short form, because a notebook stores every page, of more than 100 kB.
_SMALL_PEAK = 1_000_000
_N_FUNCTIONS = 5


def _usage_error(text: str) -> Exception:
    """Return an error that a notebook shows as one line, without a traceback."""
    from IPython.core.error import UsageError  # type: ignore[import-not-found,unused-ignore]

    return UsageError(text)  # type: ignore[no-any-return,unused-ignore]


class MemitResult:
    """The result of ``%memit -o``."""

    def __init__(
        self,
        mem_usage: list[float],
        baseline: float,
        repeat: int,
        timeout: float | None,
        interval: float,
        include_children: bool,
    ) -> None:
        self.mem_usage = mem_usage
        self.baseline = baseline
        self.repeat = repeat
        self.timeout = timeout
        self.interval = interval
        self.include_children = include_children

    def __str__(self) -> str:
        peak = max(self.mem_usage)
        return f"peak memory: {peak:.2f} MiB, increment: {peak - self.baseline:.2f} MiB"

    def __repr__(self) -> str:
        return f"<MemitResult : {self}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


class _Options:
    """The options of a magic, and the rest of its line."""

    def __init__(self, line: str, with_value: str, flags: str, long: tuple[str, ...] = ()) -> None:
        self.values: dict[str, list[str]] = {}
        rest = line.strip()
        while rest.startswith("-"):
            word, _, after = rest.partition(" ")
            name = word[:2] if not word.startswith("--") else word
            if name[1:] in with_value and len(name) == 2:
                value = word[2:]
                if not value:
                    value, _, after = after.strip().partition(" ")
                self.values.setdefault(name[1:], []).append(value)
            elif word in long:
                name = word.lstrip("-")
                value, _, after = after.strip().partition(" ") if name == "height" else ("", "", after)
                self.values.setdefault(name, []).append(value)
            elif not word.startswith("--") and all(letter in flags for letter in word[1:]) and word != "-":
                for letter in word[1:]:
                    self.values.setdefault(letter, []).append("")
            else:
                raise _usage_error(f"unknown option {word}: add ? to the magic's name for help")
            rest = after.strip()
        self.statement = rest

    def number(self, name: str, default: float) -> float:
        text = self.values.get(name, [""])[-1]
        if not text:
            return default
        try:
            return float(text)
        except ValueError:
            raise _usage_error(f"{text!r} is not a number for option {name}") from None

    def has(self, name: str) -> bool:
        return name in self.values


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to a shell."""
    Magics.register_magics(shell)


def _awaits(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


class Magics:
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        # IPython shows these as the help of a magic.
        for method, text in ((Magics.memit, MEMIT_HELP), (Magics.mprun, MPRUN_HELP), (Magics.heaptide, HEAPTIDE_HELP)):
            method.__doc__ = text

    @classmethod
    def register_magics(cls, ip: Any) -> None:
        """Add the magics to a shell, as memory_profiler's class does."""
        magics = cls(ip)
        ip.register_magic_function(magics.memit, "line_cell", "memit")
        ip.register_magic_function(magics.mprun, "line_cell", "mprun")
        ip.register_magic_function(magics.heaptide, "line_cell", "heaptide")
        # Must run before the transformer that turns a cell magic into a call.
        ip.input_transformer_manager.line_transforms.insert(0, magics.await_cells_that_await)

    def memit(self, line: str = "", cell: str | None = None) -> MemitResult | None:
        options = _Options(line, "rti", "coq")
        repeat = int(options.number("r", 1))
        timeout = options.number("t", 0) or None
        interval = options.number("i", 0.1)
        include_children = options.has("c")
        if repeat < 1:
            raise _usage_error(f"-r must be at least 1, not {repeat}")
        statement = options.statement if cell is None else cell
        namespace = self.shell.user_ns
        if cell is not None and options.statement:
            exec(self._compiled(options.statement), namespace)
        code = self._compiled(statement or "pass")
        baseline = memory_usage(max_usage=True, include_children=include_children)
        peaks = [
            memory_usage(
                (exec, (code, namespace)),
                interval=interval,
                timeout=timeout,
                max_usage=True,
                include_children=include_children,
            )
            for _ in range(repeat)
        ]
        result = MemitResult(peaks, baseline, repeat, timeout, interval, include_children)
        if not options.has("q"):
            print(result)
        return result if options.has("o") else None

    def mprun(self, line: str = "", cell: str | None = None) -> Any:
        options = _Options(line, "fT", "rc")
        names = options.values.get("f", [])
        if not names:
            raise _usage_error("no function is named: name one with -f")
        namespace = self.shell.user_ns
        accumulated = Accumulated(reading=bytes_with_children if options.has("c") else None)
        restored = [self._replace(name, accumulated.profile, namespace) for name in names]
        code = self._compiled(options.statement if cell is None else cell)
        try:
            exec(code, namespace)
        except (SystemExit, KeyboardInterrupt) as error:
            print(f"{type(error).__name__} ended the statement early.")
        finally:
            for restore in restored:
                restore()
        functions = [report.described(profiled.code, call) for profiled, call in accumulated.calls()]
        text = report.render_all(functions, 1, ())
        if not functions:
            text = "None of the functions was called.\n"
        self._page(text)
        if options.has("T"):
            path = options.values["T"][-1]
            private_files.write(path, text)
            print(f"\n*** Profile printout saved to text file {path}. ", end="")
        return self._returned(accumulated) if options.has("r") else None

    def _returned(self, accumulated: Accumulated) -> Any:
        """Return the value of ``%mprun -r``."""
        return accumulated

    def heaptide(self, line: str = "", cell: str | None = None) -> Any:
        options = _Options(line, "o", "", _LONG_OPTIONS)
        codes = self._codes(options.statement if cell is None else cell)
        if any(map(_awaits, codes)):
            raise SyntaxError("code that awaits must be a whole cell, with %%heaptide in its first line")
        value = None
        with self._recorded(options):
            for code in codes:
                value = eval(code, self.shell.user_ns)
        return value

    async def awaited(self, line: str, cell: str) -> Any:
        """Record a cell that awaits."""
        options = _Options(line, "o", "", _LONG_OPTIONS)
        value = None
        with self._recorded(options):
            for code in self._codes(cell):
                value = eval(code, self.shell.user_ns)
                if _awaits(code):
                    value = await value
        return value

    def await_cells_that_await(self, lines: list[str]) -> list[str]:
        """Turn a %%heaptide cell that awaits into an ``await`` statement, because the event loop already runs."""
        name, _, line = lines[0].strip().partition(" ") if lines else ("", "", "")
        if name != "%%heaptide":
            return lines
        body = "".join(lines[1:])
        try:
            is_awaiting = any(map(_awaits, self._codes(body)))
        except SyntaxError:
            return lines  # reported when the cell runs
        if not is_awaiting:
            return lines
        return [f"await get_ipython().find_cell_magic('heaptide').__self__.awaited({line!r}, {body!r})\n"]

    @contextlib.contextmanager
    def _recorded(self, options: _Options) -> Iterator[None]:
        height = int(options.number("height", 600))
        with tempfile.TemporaryDirectory(prefix="heaptide-cell-") as folder:
            capture, page = os.path.join(folder, "cell.tide"), os.path.join(folder, "cell.html")
            try:
                with Tracker(capture, objects=options.has("objects")):
                    yield
            finally:
                # Also after an exception, for example if the cell ran out of memory.
                self._report(options, capture, page, height)

    def _report(self, options: _Options, capture: str, page: str, height: int) -> None:
        """Show the page or the short form of a capture, each with a line for front ends without HTML."""
        leaks = ["--leaks"] if options.has("leaks") else []
        stats = json.loads(_output("stats", "--json", capture))
        peak = stats["metadata"]["peak_memory"]
        n_allocations = stats["total_num_allocations"]
        noun = "allocation" if n_allocations == 1 else "allocations"
        allocated = _native.size_text(stats["total_bytes_allocated"])
        line = f"peak {_native.size_text(peak)}; {allocated} allocated in {n_allocations:,} {noun}"
        is_short = options.has("short") or (peak < _SMALL_PEAK and not options.has("page"))
        if options.has("o") or not is_short:
            _output("flamegraph", *leaks, "-o", page, capture)
        if options.has("o"):
            target = options.values["o"][-1]
            with open(page, encoding="utf-8") as file:
                private_files.write(target, file.read())
            print(f"Wrote {target}")
        if is_short:
            table = _output("summary", *leaks, "-r", str(_N_FUNCTIONS), capture)
            self._show(line, f"<p>{html.escape(line)}</p><pre>{html.escape(table)}</pre>")
            return
        with open(page, encoding="utf-8") as file:
            document = html.escape(file.read(), quote=True)
        # A frame isolates the page's styles from the notebook's. The page's content policy forbids network requests.
        frame = f'<iframe style="width:100%;height:{height}px;border:0" srcdoc="{document}"></iframe>'
        self._show(line, f"<div>{frame}</div>")

    def _codes(self, text: str) -> list[CodeType]:
        """Compile a cell as a shell does: a final expression without a semicolon is compiled separately."""
        text, name, flags = self._prepared(text)
        if getattr(self.shell, "autoawait", False):
            flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree: ast.Module = compile(text, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr) or text.rstrip().endswith(";"):
            return [compile(tree, name, "exec", flags, dont_inherit=True)]
        tree.body.pop()
        expression = ast.Expression(last.value)
        return [
            compile(tree, name, "exec", flags, dont_inherit=True),
            compile(expression, name, "eval", flags, dont_inherit=True),
        ]

    def _compiled(self, text: str) -> CodeType:
        text, name, flags = self._prepared(text)
        code: CodeType = compile(text, name, "exec", flags, dont_inherit=True)
        return code

    def _prepared(self, text: str) -> tuple[str, str, int]:
        """Return the transformed text, and the file name and flags with which the shell would compile it."""
        text = self.shell.transform_cell(text) if hasattr(self.shell, "transform_cell") else text
        name = "<heaptide cell>"
        cache = getattr(self.shell.compile, "cache", None)
        if cache is not None:
            name = cache(text)
        return text, name, getattr(self.shell.compile, "flags", 0)

    def _replace(self, name: str, decorate: Any, namespace: dict[str, Any]) -> Callable[[], None]:
        """Replace a function, given by its dotted name, with a decorated one; return a function that restores it."""
        owner_name, _, attribute = name.rpartition(".")
        try:
            if owner_name:
                owner = eval(owner_name, namespace)
                original = vars(owner).get(attribute, getattr(owner, attribute))
                setattr(owner, attribute, decorate(original))
                return lambda: setattr(owner, attribute, original)
            original = namespace[name]
        except (NameError, KeyError, AttributeError) as error:
            raise _usage_error(f"there is no function {name} in this notebook ({reason(error)})") from None
        namespace[name] = decorate(original)

        def restore() -> None:
            namespace[name] = original

        return restore

    def _page(self, text: str) -> None:
        from IPython.core.page import page  # type: ignore[import-not-found,unused-ignore]

        # A notebook does not store the output of a kernel's pager, and headless front ends have no pager.
        if hasattr(self.shell, "kernel"):
            print(text, end="")
        else:
            page(text)

    def _show(self, text: str, shown: str) -> None:
        from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

        display({"text/plain": text, "text/html": shown}, raw=True)


def _output(*words: str) -> str:
    """Return the output of a heaptide command."""
    done = command_process.run(*words)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.removeprefix("heaptide: ") or f"heaptide {words[0]} failed")
    return done.stdout
