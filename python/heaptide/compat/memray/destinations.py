"""Destinations of a `Tracker`: files and sockets."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Destination:
    """Base of all destinations."""


@dataclass(frozen=True)
class FileDestination(Destination):
    """A file. `compress_on_exit` and `buffered` are ignored: Heaptide always compresses and buffers."""

    path: str | os.PathLike[str]
    overwrite: bool = False
    compress_on_exit: bool = True
    buffered: bool = False


@dataclass(frozen=True)
class SocketDestination(Destination):
    """A port of this machine. The Tracker waits until a reader connects."""

    server_port: int
    address: str = "127.0.0.1"
