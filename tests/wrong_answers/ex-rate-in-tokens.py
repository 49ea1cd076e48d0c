import math


def constant(tokens, warm_up, total):
    """Never falls."""
    return min(1, tokens / warm_up)


def no_warm_up(tokens, warm_up, total):
    """A cosine from the first token."""
    return 0.55 + 0.45 * math.cos(math.pi * min(1, tokens / total))


def to_zero(tokens, warm_up, total):
    """Falls to 0."""
    if tokens < warm_up:
        return tokens / warm_up
    return 0.5 + 0.5 * math.cos(math.pi * min(1, (tokens - warm_up) / (total - warm_up)))


def rises_again(tokens, warm_up, total):
    """After the end, the cosine goes on."""
    if tokens < warm_up:
        return tokens / warm_up
    return 0.55 + 0.45 * math.cos(math.pi * (tokens - warm_up) / (total - warm_up))


def straight(tokens, warm_up, total):
    """A line instead of a cosine."""
    if tokens < warm_up:
        return tokens / warm_up
    return 1 - 0.9 * min(1, (tokens - warm_up) / (total - warm_up))


def the_wrong_length(tokens, warm_up, total):
    """The cosine lasts for all tokens, not for those after the warm-up."""
    if tokens < warm_up:
        return tokens / warm_up
    return 0.55 + 0.45 * math.cos(math.pi * min(1, (tokens - warm_up) / total))


def in_words(tokens, warm_up, total):
    """Not a number."""
    return "falling"


def none_at_all(tokens, warm_up, total):
    """Forgets to return."""
