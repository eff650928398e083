"""Returns a view of every object of this process without writing a file, for test programs."""

from heaptide import _native
from heaptide.inspection import snapshots


def heap_now(*, values=False, redact=()):
    """Return the view of the heap as it is now."""
    return _view(object(), snapshots._request(values, redact))


def _view(heaptide_token, request):
    # The walk verifies its frame layout by finding `heaptide_token` in this frame.
    return _native.snapshot_heap(heaptide_token, snapshots.known_instance(), request)
