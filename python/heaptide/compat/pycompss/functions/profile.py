"""PyCOMPSs' decorator ``profile`` on Heaptide's engine: ``HEAPTIDE_COMPAT=memory_profiler`` lets imports find it.

The decorator has PyCOMPSs' parameters and works without brackets. It also reports calls that raise. Above ``@task``, it
still names the user's function.
"""

from heaptide.lines.profile import profile

__all__ = ["profile"]
