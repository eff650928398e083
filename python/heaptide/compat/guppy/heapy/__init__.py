"""``guppy.heapy``: ``Use`` is a session with heapy's operations, as ``hpy()`` returns."""

from heaptide.inspection.heapy import Heapy

Use = Heapy()
