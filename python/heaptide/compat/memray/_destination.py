"""memray's module of this name."""

from heaptide.compat.memray.destinations import Destination as Destination
from heaptide.compat.memray.destinations import FileDestination as FileDestination
from heaptide.compat.memray.destinations import SocketDestination as SocketDestination
