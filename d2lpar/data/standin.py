"""The stand-in for Fashion-MNIST, for where the real images are not there: learnable, and the same for everyone."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

_CHUNK = 1000  # stand-in images per seed, so that a prefix of a larger set is the smaller set


def standin(is_train: bool, count: int) -> tuple[Tensor, Tensor]:
    """The first `count` images (count, 1, 28, 28) and labels (count,), as uint8.

    Each class is a smooth random pattern, shifted, dimmed and covered with noise per image.

    PyTorch draws, NumPy calculates and copies: in one thread, as for the batches.
    """
    images, labels = _made(is_train, count)
    return torch.from_numpy(images.copy()), torch.from_numpy(labels.copy())


@cache
def _made(is_train: bool, count: int) -> tuple[np.ndarray, np.ndarray]:
    patterns = _blur(torch.rand(10, 28, 28, generator=torch.Generator().manual_seed(7)).numpy())
    chunks = [_standin_chunk(patterns, 1_000 * is_train + chunk) for chunk in range(-(-count // _CHUNK))]
    images, labels = (np.concatenate(parts)[:count] for parts in zip(*chunks))
    return images, labels


def _standin_chunk(patterns: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(10, (_CHUNK,), generator=generator).numpy()
    shift = torch.randint(-3, 4, (_CHUNK, 2), generator=generator).numpy()
    light = torch.rand(_CHUNK, 1, 1, generator=generator).numpy() * np.float32(0.6) + np.float32(0.3)
    noise = torch.randn(_CHUNK, 28, 28, generator=generator).numpy() * np.float32(0.15)
    rows = (np.arange(28) - shift[:, :1]) % 28
    columns = (np.arange(28) - shift[:, 1:]) % 28
    image = patterns[label[:, None, None], rows[:, :, None], columns[:, None, :]]
    image = np.clip(image * light + noise, 0, 1) * np.float32(255)
    return image.astype(np.uint8)[:, None], label.astype(np.uint8)


def _blur(patterns: np.ndarray) -> np.ndarray:
    """Random images (n, 28, 28), each point the mean of 7 by 7 around it and across the edges, stretched to 0 to 1."""
    shifts = range(3, -4, -1)
    smooth = sum(np.roll(patterns, (down, right), (1, 2)) for down in shifts for right in shifts) / np.float32(49)
    low, high = smooth.min((1, 2), keepdims=True), smooth.max((1, 2), keepdims=True)
    return (smooth - low) / (high - low)
