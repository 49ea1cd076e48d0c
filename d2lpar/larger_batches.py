"""Larger batches: gradient accumulation, the learning rate for a larger batch, and how much of a gradient is noise."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from torch import Tensor

from d2lpar.checks import check_counts
from d2lpar.models import loss as cross_entropy


def check_counted(y: Tensor) -> None:
    """Raise ValueError for a label that the loss may leave out of its sum."""
    if len(y) and y.min() < 0:
        raise ValueError(f"labels count from 0, got {y.min().item()}: where some labels do not count, divide the "
                         "summed loss by the number of those that do")


def one_number_each(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """`loss`, but ValueError where it does not give one number for each label."""
    def checked(scores: Tensor, y: Tensor) -> Tensor:
        losses = loss(scores, y)
        if losses.shape != y.shape:
            raise ValueError(f"loss must give one number per example, as with reduction='none', here {len(y)}, got "
                             f"shape {tuple(losses.shape)}: the mean of a micro-batch is divided by the wrong number")
        return losses

    return checked


def accumulate_gradients(net, X, y, num_microbatches, loss=cross_entropy):
    """Add the gradient of the mean loss of (X, y) to `grad`, and return that mean.
    `loss` gives a number per example.

    Micro-batches are cut as shards are: sizes differ by at most one. Every example counts, so no label is negative.
    After an error, call `net.zero_grad()`.

    Raises:
        ValueError: for a `loss` that gives the mean of a micro-batch.
    """
    loss = one_number_each(loss)  # package only
    check_counted(y)  # package only
    total = 0.0
    for A, c in zip(X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)):
        part = loss(net(A), c).sum() / len(X)  # of the whole minibatch
        part.backward()  # adds to `grad`, and frees what the forward pass has kept
        total += part.item()
    return total


def check_warmup(step: int, warmup: int, num_updates: int) -> None:
    """Raise ValueError unless the update `step` is one of the run, and the warm-up ends within it."""
    if not 0 <= warmup <= num_updates:
        raise ValueError(f"a warm-up of {warmup} updates is longer than the run, which has {num_updates}")
    if not 0 <= step < num_updates:
        raise ValueError(f"the run has updates 0 to {num_updates - 1}, there is no update {step}")


def linear_lr(lr, k):
    """The learning rate for k times the batch size by the linear rule: k times `lr`.

    Source: Goyal et al., 2017, section 2.1; used before by Krizhevsky, 2014.
    """
    return k * lr


def warmup_lr(step, lr, k, warmup, num_updates):
    """The rate of update `step`, 0 to num_updates - 1: from `lr` straight up to k * lr.
    Update `warmup` is the first at the full rate; without a warm-up (0) all are.

    Source: Goyal et al., 2017, section 2.2, the gradual warm-up.
    """
    check_warmup(step, warmup, num_updates)  # package only
    done = 1 if step >= warmup else step / warmup
    return lr * (1 + (k - 1) * done)


def check_gradients(gradients: Tensor, b: int) -> None:
    """Raise ValueError unless there are two gradients or more, one a row, and finite."""
    check_counts(b=b)
    if gradients.dim() != 2 or len(gradients) < 2:
        raise ValueError(f"gradients must be rows of a tensor, two at least, got shape {tuple(gradients.shape)}")
    if not gradients.isfinite().all():
        raise ValueError("gradients must be finite, some are not")


def noise_scale(gradients, b):
    """The batch size B at which noise and gradient are equally large.
    Each row of `gradients` is a mean over b examples, all at the same parameters.

    It is inf where the gradient cannot be told from its noise.

    Source: McCandlish et al., 2018, the simple noise scale, appendix A.1.
    """
    check_gradients(gradients, b)  # package only
    mean = gradients.mean(0)
    noise = (gradients - mean).square().sum() / (len(gradients) - 1)
    signal = mean.square().sum() - noise / len(gradients)  # the mean is noisy, too
    return b * (noise / signal).item() if signal > 0 else inf
