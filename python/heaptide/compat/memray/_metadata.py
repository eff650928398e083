"""memray's module of this name."""

from heaptide.compat.memray.records import Metadata as Metadata
