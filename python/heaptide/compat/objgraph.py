"""objgraph's functions on Heaptide's engine: ``HEAPTIDE_COMPAT=objgraph`` lets ``import objgraph`` find them."""

from heaptide.objects import *  # noqa: F403
from heaptide.objects import __all__ as __all__
