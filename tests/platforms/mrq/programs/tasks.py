"""Tasks that leak, that leak nothing, that fail, and that wait while other tasks run."""

import gevent
from mrq.task import Task

kept = []


class Document:
    def __init__(self, body):
        self.body = body


class Leak(Task):
    def run(self, params):
        temporary = bytearray(5_000_000)
        for _ in range(3):
            kept.append(bytearray(100_000))
        return len(temporary)


class LeakDocuments(Task):
    def run(self, params):
        for _ in range(3):
            kept.append(Document(bytearray(100_000)))


class Quiet(Task):
    def run(self, params):
        self.data = [bytearray(1000) for _ in range(params["n"] or 10)]
        return sum(len(each) for each in self.data) > 0


# The first job creates this list, so that its growth counts for the jobs that extend it.
shared = None


class Waiting(Task):
    """Leak in three parts into a growing list. Other jobs run between the parts."""

    def run(self, params):
        global shared
        shared = [] if shared is None else shared
        for _ in range(3):
            gevent.sleep(0.01)
            shared.append(bytearray(100_000))


class Failing(Task):
    def run(self, params):
        held = bytearray(2_000_000)
        kept.append(bytearray(50_000))
        raise ValueError("mine: %d" % len(held))


class TimingOut(Task):
    def run(self, params):
        held = bytearray(2_000_000)
        kept.append(bytearray(50_000))
        gevent.sleep(3600)
        return len(held)


class Grow(Task):
    def run(self, params):
        kept.append(bytearray(20_000_000))
