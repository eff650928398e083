"""``guppy.heapy``: ``Use`` is an object with heapy's operations, like the one that ``hpy()`` returns."""

from heaptide.inspection.heapy import Heapy

Use = Heapy()
