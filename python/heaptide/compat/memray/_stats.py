"""memray's module of this name."""

from heaptide.compat.memray.records import Metadata as Metadata
from heaptide.compat.memray.statistics import Stats as Stats
