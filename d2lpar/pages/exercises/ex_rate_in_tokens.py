"""The check of the exercise `ex-rate-in-tokens`."""

import math

CASES = (  # tokens so far, those of the warm-up, and all
    ("before the first token", 0, 1000, 9000), ("after a quarter of the warm-up", 250, 1000, 9000),
    ("at the end of the warm-up", 1000, 1000, 9000), ("halfway between the warm-up and the end", 5000, 1000, 9000),
    ("after a quarter of the way from the warm-up to the end", 3000, 1000, 9000), ("at the end", 9000, 1000, 9000),
    ("after the end", 12_000, 1000, 9000), ("in the middle of a run with half a warm-up", 500, 500, 1500),
    ("in a run of 10 billion tokens", 4e9, 1e9, 1e10),
)


def right(tokens, warm_up, total):
    """What the text says."""
    if tokens < warm_up:
        return tokens / warm_up
    part = min(1, (tokens - warm_up) / (total - warm_up))
    return 0.55 + 0.45 * math.cos(math.pi * part)


def check(rate):
    """What is not right yet of the answer, in words, or "Right."."""
    for words, *numbers in CASES:
        answer, should = rate(*numbers), right(*numbers)
        given = ", ".join(f"{number:,.0f}" for number in numbers)
        try:
            answer = float(answer)
        except (TypeError, ValueError):
            return f"Not yet: rate({given}) must be a number, but it is {answer!r}."
        if not math.isclose(answer, should, rel_tol=1e-6, abs_tol=1e-9):
            return f"Not yet: {words},\n  rate({given}) is {answer:.4g}, and it should be {should:.4g}."
    return "Right."
