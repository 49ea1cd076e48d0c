"""The check of the exercise `ex-shorter-code`."""

from math import isclose

ONE_MS, SHARD_MS, CONTENTION_MS, UPDATE_MS = 100, 50, 4, 2
REST_MS = 1 + 1 + 2  # hand-over, checks, exchange


def check_number(times_as_fast: float) -> str:
    """What is not right yet of the answer, in words, or "Right."."""
    left_ms = SHARD_MS + CONTENTION_MS + UPDATE_MS
    if isclose(times_as_fast, ONE_MS / left_ms, rel_tol=5e-3):
        return "Right."
    if isclose(times_as_fast, ONE_MS / (left_ms + REST_MS), rel_tol=5e-3):
        return f"Not yet: {times_as_fast:.3g} is how fast it is with everything."
    if times_as_fast > ONE_MS / left_ms:
        return "Not yet: contention and the update are left, too."
    return "Not yet: what is left of a step on two devices?"
