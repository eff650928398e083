"""Inspection of the heap: the census, heap snapshots, and the objects and operations of heapy."""
