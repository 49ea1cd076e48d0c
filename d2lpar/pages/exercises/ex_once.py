"""The check of the exercise `ex-once`."""

import torch


def interleaved(parts, n):
    """Right."""
    return torch.stack(parts, dim=1).flatten()[:n]


def place_by_place(parts, n):
    """Right."""
    together = parts[0].new_empty(n)
    for rank, part in enumerate(parts):
        places = range(rank, n, len(parts))
        together[list(places)] = part[:len(places)]
    return together


def each_class_once(parts, n):
    """The page's."""
    return torch.tensor(list(dict.fromkeys(interleaved(parts, None).tolist())))


def cut_what_repeats(parts, n):
    """The page's."""
    dealt = interleaved(parts, None)
    repeat = max((m for m in range(len(parts)) if torch.equal(dealt[:m], dealt[len(dealt) - m:])), default=0)
    return dealt[:len(dealt) - repeat]


def cut_in_front(parts, n):
    """What came twice is taken away where it came first."""
    dealt = interleaved(parts, None)
    return dealt[len(dealt) - n:]


def cut_always(parts, n):
    """Cuts by a slice from behind, which is empty where nothing must be cut."""
    return interleaved(parts, None)[:-(-n % len(parts))]


def shorter_ranks(parts, n):
    """The last of every rank is left out, as soon as something came twice."""
    together = torch.stack(parts, dim=1)
    return (together[:-1] if n % len(parts) else together).flatten()


WRONG = {  # with a hint, should the reader's test let it pass
    each_class_once: "each_class_once passes: do some of your classes come twice?",
    cut_what_repeats: "cut_what_repeats passes: when do the last classes look like the first, and belong there?",
    lambda parts, n: interleaved(parts, None): "a function that cuts nothing passes.",
    lambda parts, n: torch.cat(parts)[:n]: "one rank after another passes.",
    cut_in_front: "a function passes that cuts in front.",
    cut_always: "a function passes that leaves nothing where nothing must be cut.",
    shorter_ranks: "a function passes that leaves out the last class of every rank, where something came twice.",
    lambda parts, n: interleaved(parts, n).sort().values: "a function passes that sorts the classes.",
    lambda parts, n: torch.zeros(n, dtype=torch.int64): "a function passes that says 0 of every image.",
}


def check(is_right):
    """What is not right yet of the answer, in words, or "Right."."""
    for right in (interleaved, place_by_place):
        if is_right(right) is not True:
            return "Not yet: is_right must be True for a right put_together, and is not."
    for wrong, hint in WRONG.items():
        if is_right(wrong) is not False:
            return f"Not yet: {hint}"
    return "Right."
