"""The models of the book, as functions of `(X, params)`, and their loss.

Chapter 2 trains LeNet (LeCun, Bottou, Bengio and Haffner, 1998, with the average pooling and the rectifiers that
Dive into Deep Learning gave it) on eight raw tensors, so that nothing about the parameters is hidden.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def lenet_params(scale: float | None = None, seed: int = 0) -> list[Tensor]:
    """Eight fresh float32 tensors on the CPU: normal weights and zero biases.

    `scale` is the weights' standard deviation; by default it is sqrt(2 / inputs),
    which keeps the signal's size from layer to layer (He et al. 2015, section 2.2).
    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    generator = torch.Generator().manual_seed(seed)

    def weight(*shape: int, inputs: int) -> Tensor:
        std = sqrt(2 / inputs) if scale is None else scale
        return torch.randn(shape, generator=generator) * std

    return [
        weight(20, 1, 3, 3, inputs=1 * 3 * 3), torch.zeros(20),
        weight(50, 20, 5, 5, inputs=20 * 5 * 5), torch.zeros(50),
        weight(800, 128, inputs=800), torch.zeros(128),
        weight(128, 10, inputs=128), torch.zeros(10),
    ]


def lenet(X: Tensor, params: list[Tensor]) -> Tensor:
    """Scores (B, 10) of images X (B, 1, 28, 28) under eight tensors.

    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h1 = F.avg_pool2d(F.relu(F.conv2d(X, W1, b1)), 2, stride=2)  # (B, 20, 13, 13)
    h2 = F.avg_pool2d(F.relu(F.conv2d(h1, W2, b2)), 2, stride=2)  # (B, 50, 4, 4)
    h3 = F.relu(h2.flatten(1) @ W3 + b3)  # (B, 128)
    return h3 @ W4 + b4


loss = nn.CrossEntropyLoss(reduction="none")  # one number per example
"""Cross-entropy of scores (B, 10) and classes (B,), of shape (B,), in `loss(scores, y)`.

Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
"""
