"""PyCOMPSs' decorator ``profile`` on Heaptide: ``HEAPTIDE_COMPAT=memory_profiler`` lets imports find it.

The decorator has PyCOMPSs' parameters and works without parentheses. It also reports calls that raise. Above ``@task``,
it still names the user's function.
"""

from heaptide.lines.profile import profile

__all__ = ["profile"]
