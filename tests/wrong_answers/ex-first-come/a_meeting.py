"""Sees that they run at once, and not in which order the results come."""

from threading import Barrier


def is_right(run):
    meeting = Barrier(3, timeout=5)
    return len(run(lambda rank: meeting.wait(), range(3))) == 3
