"""PyCOMPSs' decorator ``profile`` on Heaptide's engine: ``HEAPTIDE_COMPAT=memory_profiler`` lets imports find it.

The decorator keeps its parameters, may be used without brackets, names the user's function also above ``@task``, and
reports calls that raise.
"""

from heaptide.lines.profile import profile

__all__ = ["profile"]
