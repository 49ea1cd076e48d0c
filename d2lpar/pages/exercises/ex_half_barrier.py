"""The check of the exercise `ex-half-barrier`."""


def check(is_barrier):
    """What is not right yet of the answer, in words, or "Right."."""
    cases = [
        ("a barrier", [0.0, 0.3, 0.6], [0.61, 0.62, 0.61], True),
        ("half_barrier", [0.0, 0.3, 0.6], [0.61, 0.31, 0.61], False),
        ("rank 0 comes last", [0.9, 0.3, 0.6], [0.91, 0.92, 0.93], True),
        ("rank 0 comes last, and rank 2 has not waited for it", [0.9, 0.3, 0.6], [0.91, 0.92, 0.61], False),
        ("all come and go at once, and wait long", [1.0, 1.0, 1.0], [3.0, 3.0, 3.0], True),
        ("only rank 0 has not waited", [0.1, 0.2, 0.5, 0.4], [0.2, 0.6, 0.6, 0.6], False),
        ("rank 3 of 4 has waited for rank 1, and not for rank 2", [0.0, 0.2, 0.8, 0.1], [0.9, 0.9, 0.9, 0.3], False),
        ("each waits for its neighbours only", [0.0, 0.2, 0.4, 0.6, 0.8], [0.9, 0.5, 0.7, 0.9, 0.9], False),
        ("each goes much later than it might", [0.0, 0.2], [5.0, 9.0], True),
        ("one rank alone", [0.4], [0.5], True),
    ]
    for name, came_s, left_s, right in cases:
        given = is_barrier(list(came_s), list(left_s))
        if given is not right:
            return (f"Not yet: {name}:\n  is_barrier({came_s}, {left_s})\n"
                    f"  must be {right}, and is {given}.")
    return "Right."
