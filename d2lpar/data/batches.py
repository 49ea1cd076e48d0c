"""Fashion-MNIST in memory, as minibatches, and a stand-in where it is not there.

`load_data_fashion_mnist` reads the `official_files`; `python -m d2lpar data` (`make data`) downloads them. Where there
are none, the images of `standin` take their place, and every printed line and figure says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from d2lpar.base.checks import check_counts
from d2lpar.data.official_files import OFFICIAL_TEST, OFFICIAL_TRAIN, book_sizes, find_data, read_set
from d2lpar.data.standin import standin

_standin_in_use = False


class Batches:
    """Minibatches of images and labels that lie in memory, as often as one asks.

    Iterating gives pairs X, float32 of shape (B, 1, 28, 28) from 0 to 1, and y, int64 of shape (B,); the last pair may
    be smaller. Training batches are drawn in a new order each time, the same orders for the same seed.
    All this is the work of one thread, whatever PyTorch's number of threads.

    Args:
        images: uint8 of shape (n, 1, 28, 28) or any other, n at least 1.
        labels: whole numbers from 0 to 9, shape (n,).

    Raises:
        ValueError: for images that are no bytes, or not as many as labels.
    """

    def __init__(self, images: Tensor, labels: Tensor, batch_size: int, shuffle_seed: int | None = None) -> None:
        check_counts(batch_size=batch_size)
        if images.dtype is not torch.uint8 or not len(images) == len(labels) > 0:  # dividing by 255 is for bytes
            raise ValueError("Batches need images of uint8 and as many labels, "
                             f"got {len(images)} of {images.dtype} and {len(labels)}")
        self.images, self.labels, self.batch_size = images, labels, batch_size
        self._generator = None if shuffle_seed is None else torch.Generator().manual_seed(shuffle_seed)

    def __len__(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = self.images.numpy(), self.labels.numpy()
        count = len(labels)
        order = np.arange(count)
        if self._generator is not None:
            order = torch.randperm(count, generator=self._generator).numpy()
        for start in range(0, count, self.batch_size):
            chosen = order[start : start + self.batch_size]
            # PyTorch makes the tensors, at the addresses that its kernels like, and NumPy fills them: its loops never
            # wait for a second thread, which on a busy machine can take longer than an epoch of batches
            X, y = torch.empty(len(chosen), *images.shape[1:]), torch.empty(len(chosen), dtype=torch.int64)
            np.divide(images.take(chosen, axis=0), np.float32(255), out=X.numpy(), dtype=np.float32)
            y.numpy()[:] = labels.take(chosen)
            yield X, y


def load_data_fashion_mnist(batch_size: int, num_train: int | None = None, num_test: int | None = None,
                            seed: int = 0) -> tuple[Batches, Batches]:
    """Training batches, shuffled by `seed`, and test batches in the official order; prints one line on the source.

    Args:
        batch_size: examples per batch, at least 1.
        num_train, num_test: take that many from the front of the official files; None for the book's sizes.

    Raises:
        ValueError: for a number below 1, or more than the 60,000 and 10,000 images that there are.
        DataError: if a data file is there but cannot be used, or holds fewer; nothing is read from half a file.
    """
    check_counts(batch_size=batch_size)
    book_train, book_test = book_sizes()
    train, test = _load(book_train if num_train is None else num_train, book_test if num_test is None else num_test)
    train_iter, test_iter = Batches(*train, batch_size, shuffle_seed=seed), Batches(*test, batch_size)
    print(_source_line(len(train_iter.labels), len(test_iter.labels)))
    return train_iter, test_iter


def standin_in_use() -> bool:
    """Whether the images loaded last in this process were the stand-in."""
    return _standin_in_use


def provenance(num_train: int, num_test: int) -> dict:
    """Where the first `num_train` and `num_test` images come from, with a SHA-256 of all their bytes and labels.

    Raises:
        ValueError, DataError: as `load_data_fashion_mnist` does.
    """
    train, test = _load(num_train, num_test)
    digest = hashlib.sha256()
    for tensor in (*train, *test):
        digest.update(tensor.numpy().tobytes())
    return {"source": "stand-in" if _standin_in_use else "Fashion-MNIST",
            "num_train": len(train[1]), "num_test": len(test[1]), "sha256": digest.hexdigest()}


def _load(num_train: int, num_test: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The first images and labels of both sets as uint8, shapes (n, 1, 28, 28) and (n,); remembers whether real."""
    global _standin_in_use
    for name, count, most in (("num_train", num_train, OFFICIAL_TRAIN), ("num_test", num_test, OFFICIAL_TEST)):
        check_counts(**{name: count})  # a slice would end before the last -count images
        if count > most:
            raise ValueError(f"{name} is {count:,}, but Fashion-MNIST has only {most:,} such images")
    root = find_data()
    if root is None:
        train, test = standin(True, num_train), standin(False, num_test)
    else:
        train, test = read_set(root, True, num_train), read_set(root, False, num_test)
    _standin_in_use = root is None
    return train, test


def _source_line(num_train: int, num_test: int) -> str:
    sizes = f"{num_train:,} training and {num_test:,} test images"
    if not _standin_in_use:
        return f"Fashion-MNIST, {sizes}"
    return (f"STAND-IN images, not Fashion-MNIST, {sizes}; "
            "import d2lpar; d2lpar.download.download_fashion_mnist() gets the real ones (30 MB)")
