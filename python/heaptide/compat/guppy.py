"""guppy's heapy on Heaptide's engine: ``HEAPTIDE_COMPAT=guppy`` lets ``from guppy import hpy`` find it."""

from heaptide.inspection.heapy import hpy

__all__ = ["hpy"]
