"""Unequal work, but in the order in which it ends."""

from time import sleep


def is_right(run):
    def late(rank):
        sleep(0.1 * rank)
        return rank

    return run(late, range(3)) == [0, 1, 2]
