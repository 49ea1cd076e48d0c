"""A minibatch in pieces, one after another on one device: the gradient of the whole, in less memory."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from d2lpar.one_step.models import loss as cross_entropy


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
