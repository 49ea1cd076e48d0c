"""The check of the exercise `ex-once`."""

import torch
from torch.utils.data import DistributedSampler


def check(put_together):
    """What is not right yet of the answer, in words, or "Right."."""
    generator = torch.Generator()
    generator.seed()  # another order each time
    for n, k in [(12, 3), (10, 3), (7, 2), (11, 4), (1, 4), (2, 3), (5, 1), (50, 6),
                 (10, 5), (100, 8)]:
        right = torch.randperm(n, generator=generator)
        parts = [right[list(DistributedSampler(range(n), k, rank, shuffle=False))]
                 for rank in range(k)]
        given = [part.clone() for part in parts]
        answer = put_together(given, n)
        case = f"Not yet: {n} images on {k} ranks:"
        if answer is None:
            return "Not yet: put_together returns nothing."
        if not torch.is_tensor(answer) or answer.dtype != right.dtype:
            return f"{case} give one tensor of whole numbers, not {answer!r:.60}."
        if len(given) != k or not all(map(torch.equal, given, parts)):
            return f"{case} you have changed what the ranks gave."
        if answer.shape != (n,):
            return f"{case} give {n} predictions, not a shape of {tuple(answer.shape)}."
        wrong = [i for i in range(n) if answer[i] != right[i]]
        if wrong:
            return f"{case} at place {wrong[0]} stands another image's prediction."
    return "Right."
