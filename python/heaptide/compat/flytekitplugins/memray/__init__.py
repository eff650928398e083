"""Flyte's plugin for memray on Heaptide: ``HEAPTIDE_COMPAT=memray`` lets imports of the plugin find it."""

from .profiling import memray_profiling

__all__ = ["memray_profiling"]
