"""The check of the exercise `ex-mean-accuracy`."""

import torch


def check(batch):
    """Return "Right.", or "Not yet: " and what is still wrong with the answer."""
    for k in (2, 3, 7, 11, 12, 43, 44):
        right = torch.as_tensor(batch(k), dtype=torch.float64)
        if right.dim() != 1 or len(right) == 0 or not set(right.tolist()) <= {0, 1}:
            return f"Not yet: for k = {k}, return a list of ones and zeros, not {right.tolist()}."
        mean = sum(shard.mean() for shard in right.tensor_split(k)) / k
        if mean.isnan():
            return (f"Not yet: {len(right)} images leave one of {k} devices without an image. "
                    "The mean is NaN, and anyone would notice.")
        if (mean - right.mean()).abs() < 1e-9:
            return f"Not yet: on {k} devices, {right.int().tolist()} gives {mean:.3g}, and that is the right accuracy."
    return "Right."
