"""The checks of the functions of `d2lpar.ways` that readers write; two of them need ranks."""

import torch
import torch.distributed as dist

from d2lpar.pages.differences import compare, compare_values
from d2lpar.pages.on_ranks import compare_on_ranks


def tensor(values):
    """A tensor of these values, in float64."""
    return torch.tensor(values, dtype=torch.float64)


def sums(rank, fn, xs, turned=False):
    """The sum, and x afterwards, also once somebody has overwritten the sum."""
    x = xs[rank].clone()
    x = x.T.contiguous().T if turned and rank == 0 else x
    result = fn(x)
    found = {"the result": result.clone() if isinstance(result, torch.Tensor) else result, "x": x.clone()}
    if isinstance(result, torch.Tensor):
        result.fill_(100)
    return {**found, "x, after somebody has overwritten the result,": x}


def check_sum_over_ranks(yours):
    compare_on_ranks(yours, "if x is [30] on rank 0 and [12] on rank 1", sums, [tensor([30.0]), tensor([12.0])])
    compare_on_ranks(yours, "for one matrix on each of three ranks", sums,
                     [tensor([[1.0, 2], [3, 4]]), tensor([[10.0, 20], [30, 40]]), tensor([[5.0, 6], [7, 8]])], world_size=3)
    compare_on_ranks(yours, "for matrices, of which that of rank 0 is stored by columns", sums,
                     [tensor([[1.0, 2], [3, 4]]), tensor([[10.0, 20], [30, 40]])], True)


def mlps(rank, fn, X, W1, b1, W2, b2):
    """The output and all gradients of two MLPs in turn, if each rank has some of the hidden units."""
    k = dist.get_world_size()
    parts = [X, W1.tensor_split(k, 1)[rank], b1.tensor_split(k)[rank], W2.tensor_split(k)[rank], b2]
    X, *params = (x.clone().requires_grad_() for x in parts)
    y = fn(X, *params)
    if not isinstance(y, torch.Tensor):
        return {"the result": y}
    found = {"the result": y.detach().clone()}
    (y * torch.arange(1.0, 1 + y.numel()).view_as(y)).sum().backward()
    return found | {f"the gradient of {name}": "missing" if x.grad is None else x.grad
                    for name, x in zip(("X", "W1", "b1", "W2", "b2"), (X, *params))}


def check_column_row_mlp(yours):
    def case(words, *values, **settings):
        compare_on_ranks(yours, words, mlps, *map(tensor, values), **settings)

    case("for one input, 3, and two hidden units with the weights 2 and 5, and 4 and 1", [[3.0]], [[2.0, 4]], [0.0, 0], [[5.0], [1]],
         [0.0])
    case("for the same units, if b2 is 1", [[3.0]], [[2.0, 4]], [0.0, 0], [[5.0], [1]], [1.0])
    case("for two examples with two inputs, and three hidden units on two ranks", [[1.0, -2], [0.5, 3]],
         [[1.0, -1, 2], [-2, 1, 0.5]], [1.0, -0.5, 2], [[1.0, 3], [-2, 1], [0.5, 4]], [3.0, -1])
    case("for the same network on three ranks", [[1.0, -2], [0.5, 3]], [[1.0, -1, 2], [-2, 1, 0.5]], [1.0, -0.5, 2],
         [[1.0, 3], [-2, 1], [0.5, 4]], [3.0, -1], world_size=3)


def check_gpipe_order(yours):
    for num_micro in (1, 2, 3, 5):
        compare_values(yours, f"for num_micro={num_micro}", num_micro)


def for_each(yours, *cases):
    """Compare for arguments by name, which are also the words of the case."""
    for case in cases:
        words = ", ".join(f"{name}={value:g}" for name, value in case.items())
        compare(yours, f"for {words}", lambda case=case: tuple(case.values()))


def check_alone_s(yours):
    for_each(yours, {"batch": 1, "flop": 5e9, "flops_per_s": 1e12}, {"batch": 40, "flop": 5e9, "flops_per_s": 2e12})


def check_data_parallel_s(yours):
    for_each(yours, *({"k": k, "shard_s": shard_s, "params_s": params_s, "overlap": overlap}
                      for k, shard_s, params_s, overlap in (
                          (1, 9, 5, 0), (2, 9, 5, 0), (5, 9, 5, 0),  # no overlap
                          (2, 9, 5, 1), (2, 9, 5, 0.5),  # all of the sending, or half of it, is hidden
                          (2, 3, 5, 1), (2, 3, 5, 0.5),  # the backward pass is too short
                          (1, 9, 5, 1))))
    compare(yours, "for k=2, shard_s=9, params_s=5 and no fourth argument", lambda: (2, 9, 5))


def check_tensor_parallel_s(yours):
    for_each(yours, *({"k": k, "work_s": work_s, "summed_s": summed_s, "overlap": overlap}
                      for k, work_s, summed_s, overlap in (
                          (1, 20, 3, 0), (2, 20, 3, 0), (5, 20, 3, 0), (2, 20, 3, 1), (2, 20, 3, 0.5),
                          (2, 4, 3, 1), (2, 4, 3, 0.5), (5, 20, 9, 1), (1, 20, 3, 1))))
    compare(yours, "for k=2, work_s=20, summed_s=3 and no fourth argument", lambda: (2, 20, 3))


def check_pipeline_s(yours):
    for_each(yours, *({"work_s": work_s, "busiest_s": busiest_s, "crossing_s": crossing_s, "widest_s": widest_s, "micro": micro}
                      for work_s, busiest_s, crossing_s, widest_s, micro in (
                          (12, 6, 0, 0, 1), (12, 6, 1, 1, 1), (12, 6, 0, 0, 2), (12, 6, 0, 0, 3),
                          (20, 9, 3, 2, 2),  # the stage limits both passes
                          (20, 9, 6, 4, 2),  # the cut limits the forward pass
                          (20, 9, 11, 8, 2), (20, 9, 11, 8, 5))))  # and both
    compare(yours, "for work_s=12, busiest_s=6, crossing_s=1, widest_s=1 and no fifth argument", lambda: (12, 6, 1, 1))
