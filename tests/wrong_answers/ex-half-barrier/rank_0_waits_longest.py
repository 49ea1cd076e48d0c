"""The page's own test, for all ranks: waiting longest is not waiting long enough."""


def is_barrier(came_s, left_s):
    waited = [left - came for came, left in zip(came_s, left_s)]
    return waited[0] == max(waited)
