"""memray's module of this name."""

from heaptide.compat.memray.version import __version__ as __version__
