"""The plugin's module with its decorator."""

from heaptide.platforms.flyte import memray_profiling

__all__ = ["memray_profiling"]
