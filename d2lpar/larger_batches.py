"""Larger batches: gradient accumulation, the learning rate for a larger batch, and how much of a gradient is noise."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from torch import Tensor

from d2lpar.checks import check_lr, is_number, shown
from d2lpar.models import loss as cross_entropy


def check_counted(y: Tensor) -> None:
    """Raise ValueError for a label that the loss may ignore."""
    if len(y) and y.min() < 0:
        raise ValueError(f"labels must not be negative, got {y.min().item()}. If some labels are to be ignored, divide "
                         "the summed loss by the number of the others")


def one_number_each(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """`loss`, with a ValueError if it does not return one value per label."""
    def checked(scores: Tensor, y: Tensor) -> Tensor:
        losses = loss(scores, y)
        if losses.shape != y.shape:
            raise ValueError(f"loss must return one value per example, as with reduction='none': expected shape "
                             f"{tuple(y.shape)}, got {tuple(losses.shape)}. The mean of a micro-batch would be divided "
                             "by the wrong number")
        return losses

    return checked


def accumulate_gradients(net, X, y, num_microbatches, loss=cross_entropy):
    """Add the gradient of the mean loss over (X, y) to `grad`, and return that mean,
    a number. `loss(net(A), c)` has one value per example.

    Micro-batches are cut like shards: their sizes differ by at most one. Every example counts, so labels must not be
    negative. After an error, call `net.zero_grad()`.

    Raises:
        ValueError: if `loss` returns a mean instead of one value per example, or if a label is negative.
    """
    loss = one_number_each(loss)  # package only
    check_counted(y)  # package only
    total = 0.0
    for A, c in zip(X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)):
        part = loss(net(A), c).sum() / len(X)  # the whole minibatch, not len(A)
        part.backward()  # adds to `grad`, frees what the forward pass kept
        total += part.item()
    return total


def check_warmup(step: int, warmup: int, num_updates: int) -> None:
    """Raise ValueError unless the run has an update `step` and is at least as long as the warm-up."""
    if not 0 <= warmup <= num_updates:
        raise ValueError(f"warmup must be between 0 and num_updates, which is {num_updates}, got {warmup}")
    if not 0 <= step < num_updates:
        raise ValueError(f"there is no update {step}: the updates of the run are numbered 0 to {num_updates - 1}")


def check_rule(lr: float, k: float) -> None:
    """Raise ValueError unless `lr` is a learning rate, and `k` says how many times as large the batch size is."""
    check_lr(lr)
    if not is_number(k) or k <= 0:
        raise ValueError(f"k must be a finite number above 0, got {shown(k)}")


def linear_lr(lr, k):
    """The linear rule: k times the learning rate `lr` for k times the batch size.

    Raises:
        ValueError: unless `lr` is finite and at least 0, and `k` is finite and above 0.

    Source: Goyal et al., 2017, section 2.1; used before by Krizhevsky, 2014.
    """
    check_rule(lr, k)  # package only
    return k * lr


def warmup_lr(step, lr, k, warmup, num_updates):
    """The learning rate of update `step` (0 to num_updates - 1), rising from `lr` to
    k * lr in equal steps. Update `warmup` is the first at the full rate.

    Without a warm-up (0) every update has the full rate.

    Source: Goyal et al., 2017, section 2.2, the gradual warm-up.
    """
    check_rule(lr, k)  # package only
    check_warmup(step, warmup, num_updates)  # package only
    done = 1 if step >= warmup else step / warmup
    return lr * (1 + (k - 1) * done)


def check_gradients(gradients: Tensor, b: int) -> None:
    """Raise ValueError unless there are at least two gradients, one per row, finite and not all the same."""
    if not 1 <= b < inf:  # b may be 32.0, a minibatch divided by the ranks
        raise ValueError(f"b, the number of examples of each gradient, must be at least 1, got {b}")
    if gradients.dim() != 2 or len(gradients) < 2:
        raise ValueError("gradients must be a tensor with one gradient per row, at least two, got shape "
                         f"{tuple(gradients.shape)}")
    if not gradients.isfinite().all():
        raise ValueError("gradients must be finite, but some values are not")
    if (gradients == gradients[0]).all():
        raise ValueError(f"gradients must differ, but all {len(gradients)} rows are equal, as they are after an "
                         "allreduce. Take each rank's gradient before the exchange")


def noise_scale(gradients, b):
    """The batch size B at which the noise is as large as the gradient, or inf.
    Each row of `gradients` is the mean over b examples, before any exchange.

    All rows are taken at the same parameters. B is inf if the gradient cannot be told from its noise.

    Source: McCandlish et al., 2018, the simple noise scale, appendix A.1.
    """
    check_gradients(gradients, b)  # package only
    mean = gradients.mean(0)
    noise = (gradients - mean).square().sum() / (len(gradients) - 1)
    signal = mean.square().sum() - noise / len(gradients)  # the mean is noisy, too
    return b * (noise / signal).item() if signal > 0 else inf
