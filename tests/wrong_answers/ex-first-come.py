from threading import Barrier
from time import sleep


def a_meeting(run):
    """Sees that they run at once, and not in which order the results come."""
    meeting = Barrier(3, timeout=5)
    return len(run(lambda rank: meeting.wait(), range(3))) == 3


def equal_work(run):
    """The page's: who begins first ends first."""
    return run(pow, [2, 3, 4], [5, 2, 1]) == [32, 9, 4]


def in_any_order(run):
    """Sorts the mistake away."""
    def late(rank):
        sleep(0.1 * (2 - rank))
        return rank

    return sorted(run(late, range(3))) == [0, 1, 2]


def never(run):
    """Right about the wrong one, and wrong about the right one."""
    return False


def the_last_ends_last(run):
    """Unequal work, but in the order in which it ends."""
    def late(rank):
        sleep(0.1 * rank)
        return rank

    return run(late, range(3)) == [0, 1, 2]
