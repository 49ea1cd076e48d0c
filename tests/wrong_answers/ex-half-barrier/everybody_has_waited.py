"""Nobody goes at once, but they may still go too early."""


def is_barrier(came_s, left_s):
    return all(left > came for came, left in zip(came_s, left_s))
