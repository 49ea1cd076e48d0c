"""The check of the exercise `ex-statistics`."""

import copy

import torch
from torch import nn

from d2lpar.scratch import distance, same_bits


def check(of_the_whole):
    """What is not right yet of the answer, in words, or "Right."."""
    for sizes in [(4, 4), (6, 6, 6), (2, 9), (3, 2, 11, 5), (7,), (4, 0), (0, 5, 5),
                  (0, 3, 8), (3, 5)]:
        generator = torch.Generator().manual_seed(sum(sizes))
        whole = torch.randn(sum(sizes), 3, generator=generator, dtype=torch.float64)
        whole += torch.arange(len(whole)).unsqueeze(1) / 4
        if sizes == (3, 5):  # a shard that looks empty but is not
            whole[:3] = torch.tensor([[-1.0], [0.0], [1.0]])
        kept = []
        for shard in [*whole.split(list(sizes)), whole]:
            layer = nn.BatchNorm1d(3, momentum=1.0).double()
            if len(shard):
                layer(shard)
            kept.append((layer.running_mean, layer.running_var))
        *of_ranks, right = kept
        given = [list(sizes), *map(list, zip(*of_ranks))]
        before = copy.deepcopy(given)
        answer = of_the_whole(*given)
        case = f"shards of {', '.join(map(str, sizes))} values"
        if answer is None:
            return "Not yet: of_the_whole returns nothing."
        if len(answer) != 2 or any(getattr(a, "shape", ()) != (3,) for a in answer):
            return f"Not yet: {case}: return two tensors of 3 values, not {answer!r}."
        same = given[0] == before[0] and all(
            len(now) == len(then) and same_bits([now, then])
            for now, then in zip(given[1:], before[1:]))
        if not same:
            return f"Not yet: {case}: you changed the statistics that the ranks kept."
        for name, mine, theirs in zip(("mean", "variance"), answer, right):
            if not distance([mine], [theirs]) < 1e-10:
                return (f"Not yet: {case}: a single device keeps the {name} "
                        f"{theirs.tolist()}, but you return {mine.tolist()}.")
    return "Right."
