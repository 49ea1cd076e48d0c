"""The check of the exercise `ex-scale`."""

from itertools import chain

import torch

from d2lpar.one_step.yardstick import distance


def micro_batches(counts, w):
    """For each rank the losses of its micro-batches, which depend on w."""
    generator = torch.Generator().manual_seed(len(counts))
    return [[(torch.randn(count, 3, generator=generator).double() @ w).square()
             for count in own] for own in counts]


def check(loss_of):
    """What is not right yet of the answer, in words, or "Right."."""
    for counts in ([[4, 4], [4, 4]], [[6], [6], [6]], [[9, 1], [2]], [[5, 5], [1, 1]],
                   [[3, 0], [4, 2]], [[4], [0]], [[7]], [[2, 8, 1]],
                   [[1], [2], [3, 4], [5, 6, 7]]):
        w = torch.tensor([1.0, -2.0, 0.5]).double().requires_grad_()
        case, found = f"Not yet: {counts} tokens:", torch.zeros(3).double()
        for rank, own in enumerate(micro_batches(counts, w)):
            for losses in own:
                told = [list(row) for row in counts]
                loss = loss_of(losses, rank, told)
                if loss is None:
                    return "Not yet: loss_of returns nothing."
                if told != counts:
                    return f"{case} you have changed the counts."
                if not torch.is_tensor(loss) or loss.dim() or not loss.requires_grad:
                    return f"{case} give one number that backward can be called on."
                found += torch.autograd.grad(loss, w)[0] / len(counts)  # as DDP does
        every = torch.cat(list(chain(*micro_batches(counts, w))))
        [right] = torch.autograd.grad(every.mean(), w)
        if not (off := distance([found], [right])) < 1e-12:
            times = (found.norm() / right.norm()).item()
            return f"{case} {off:.3g} off, and {times:.3g} times one worker's length."
    return "Right."
