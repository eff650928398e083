"""memory_profiler's magics: those of :mod:`heaptide.notebook`, but ``%mprun -r`` returns a ``LineProfiler``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heaptide.notebook import Magics

from .line_profiler import LineProfiler, in_mib

if TYPE_CHECKING:
    from heaptide.commands.lines import Accumulated


class MemoryProfilerMagics(Magics):
    """The magics of one shell."""

    def _returned(self, accumulated: Accumulated) -> LineProfiler:
        profiler = LineProfiler()
        for profiled, call in accumulated.calls():
            profiler.code_map.add(profiled.code)
            profiler.code_map[profiled.code].update(in_mib(call.rows))
        return profiler


def load_ipython_extension(ip: Any) -> None:
    """Add the magics to a shell."""
    MemoryProfilerMagics.register_magics(ip)
