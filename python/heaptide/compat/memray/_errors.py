"""memray's module of this name."""

from heaptide.compat.memray.errors import MemrayCommandError as MemrayCommandError
from heaptide.compat.memray.errors import MemrayError as MemrayError
