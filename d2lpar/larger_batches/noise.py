"""How much of a minibatch's gradient is noise: the batch size from which on more examples hardly improve it."""

from __future__ import annotations

from math import inf

from torch import Tensor

from d2lpar.base.checks import check_counts


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
