"""The check of the exercise `ex-equal-shards`."""

import torch

from d2lpar.batchnorm import combine_moments, moments
from d2lpar.scratch import distance


def check(equal_only):
    """What is not right yet of the answer, in words, or "Right."."""
    generator = torch.Generator().manual_seed(0)
    for sizes in ([6], [4, 4], [3, 3, 3], [2] * 8, [4, 3], [5, 5, 4], [1, 8], [7, 0]):
        whole = torch.randn(sum(sizes), 3, generator=generator, dtype=torch.float64)
        whole += torch.arange(len(whole)).unsqueeze(1)
        given = [list(part) for part in zip(*map(moments, whole.split(sizes)))]
        right = combine_moments(*given)
        answer = equal_only(*given)
        case = f"Not yet: shards of {', '.join(map(str, sizes))} values:"
        if answer is None or len(answer) != 3:
            return f"{case} return a count, the mean and the squares, not {answer!r}."
        count, mean, squares = answer
        off = distance([mean], [right[1]])
        if len(set(sizes)) == 1:
            if count != right[0] or not off < 1e-12 or not distance([squares], [right[2]]) < 1e-12:
                return f"{case} the shards are equal, but you do not return the moments of the whole."
        elif not 1e-3 < off < float("inf"):
            return f"{case} your mean is {'not a finite number' if off > 1 else 'the right one'}."
    return "Right."
