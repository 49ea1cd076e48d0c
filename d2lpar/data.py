"""Fashion-MNIST in memory, as minibatches.

The images that the book uses come with the package: the first 3,584 training and 2,048 test images of the official
files (Xiao, Rasul and Vollgraf, 2017), a laptop's worth, in `fashion_mnist.npz`. With the environment variable
D2LPAR_FULL=1 the book uses all 60,000 and 10,000. It takes them from the folder that D2LPAR_DATA names. Without that
variable it looks where Debian's package `dataset-fashion-mnist` puts them, and then in the user's cache, into which
torchvision downloads them once.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
import zlib
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from d2lpar.checks import check_counts

NUM_TRAIN, NUM_TEST = 3584, 2048  # 14 batches of 256 and 8 of 256
OFFICIAL_TRAIN, OFFICIAL_TEST = 60_000, 10_000
BOOK_IMAGES = Path(__file__).with_name("fashion_mnist.npz")
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


class File(NamedTuple):
    """One of the four official files: its name in the book's own file, where its data begin, and its SHA-256."""

    name: str
    in_book: str
    header_bytes: int
    sha256: str  # of the unpacked file, header included; computed from the files in Debian's package


FILES = {  # images and labels, keyed by "is it the training set?"
    True: (File("train-images-idx3-ubyte", "train_images", 16,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
           File("train-labels-idx1-ubyte", "train_labels", 8,
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9")),
    False: (File("t10k-images-idx3-ubyte", "test_images", 16,
                 "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
            File("t10k-labels-idx1-ubyte", "test_labels", 8,
                 "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34")),
}


class DataError(Exception):
    """The full set cannot be used or downloaded; the message names the file and says what to do."""


class Batches:
    """Minibatches of images and labels in memory, to iterate over as often as you like.

    Iterating gives pairs X, float32 of shape (B, 1, 28, 28) from 0 to 1, and y, int64 of shape (B,); the last pair may
    be smaller. Training batches come in a different order each time; the same seed gives the same orders.
    All of this runs in one thread, however many threads PyTorch uses.

    Args:
        images: uint8 of shape (n, ...), such as (n, 1, 28, 28), n at least 1.
        labels: whole numbers from 0 to 9, shape (n,).

    Raises:
        ValueError: if the images are not uint8, or there is not one label per image.
    """

    def __init__(self, images: Tensor, labels: Tensor, batch_size: int, shuffle_seed: int | None = None) -> None:
        check_counts(batch_size=batch_size)
        if images.dtype is not torch.uint8 or not len(images) == len(labels) > 0:  # only bytes are divided by 255
            raise ValueError("Batches need uint8 images and one label per image, "
                             f"got {len(images)} images of {images.dtype} and {len(labels)} labels")
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
            # PyTorch allocates the tensors, at the addresses that its kernels prefer, and NumPy fills them: its loops
            # never wait for a second thread, and that wait can take longer than an epoch of batches on a busy machine
            X, y = torch.empty(len(chosen), *images.shape[1:]), torch.empty(len(chosen), dtype=torch.int64)
            np.divide(images.take(chosen, axis=0), np.float32(255), out=X.numpy(), dtype=np.float32)
            y.numpy()[:] = labels.take(chosen)
            yield X, y


def load_data_fashion_mnist(batch_size: int, num_train: int | None = None, num_test: int | None = None,
                            seed: int = 0) -> tuple[Batches, Batches]:
    """Training batches, shuffled by `seed`, and test batches in the official order; prints one line about the data.

    Args:
        batch_size: examples per batch, at least 1.
        num_train, num_test: how many to take from the front of the official files; None for the book's sizes.

    Raises:
        ValueError: for a number below 1, above the book's 3,584 and 2,048 images unless D2LPAR_FULL is set, or above
            the full 60,000 and 10,000.
        DataError: if the full set is requested and cannot be used; a file with wrong bytes is named and not used.
    """
    check_counts(batch_size=batch_size)
    book_train, book_test = book_sizes()
    train, test = _load(book_train if num_train is None else num_train, book_test if num_test is None else num_test)
    train_iter, test_iter = Batches(*train, batch_size, shuffle_seed=seed), Batches(*test, batch_size)
    print(f"Fashion-MNIST, {len(train_iter.labels):,} training and {len(test_iter.labels):,} test images")
    return train_iter, test_iter


def provenance(num_train: int, num_test: int) -> dict:
    """Where the first `num_train` and `num_test` images come from, with a SHA-256 of all their bytes and labels.

    Raises:
        ValueError, DataError: in the same cases as `load_data_fashion_mnist`.
    """
    train, test = _load(num_train, num_test)
    digest = hashlib.sha256()
    for tensor in (*train, *test):
        digest.update(tensor.numpy().tobytes())
    return {"source": "Fashion-MNIST", "num_train": len(train[1]), "num_test": len(test[1]),
            "sha256": digest.hexdigest()}


def book_sizes() -> tuple[int, int]:
    """How many training and test images the book's pages use: a laptop's worth, or all of them with D2LPAR_FULL=1.

    Raises:
        DataError: if D2LPAR_FULL is neither 1 nor 0 (nor true, yes, on, false, no or off).
    """
    setting = os.environ.get("D2LPAR_FULL", "")
    word = setting.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return OFFICIAL_TRAIN, OFFICIAL_TEST
    if word in ("", "0", "false", "no", "off"):
        return NUM_TRAIN, NUM_TEST
    raise DataError(f"D2LPAR_FULL is {setting!r}; it must be 1 or 0")


def _load(num_train: int, num_test: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The first images and labels of both sets as uint8, shapes (n, 1, 28, 28) and (n,)."""
    is_full = book_sizes() == (OFFICIAL_TRAIN, OFFICIAL_TEST)
    for kind, count, in_book, most in (("train", num_train, NUM_TRAIN, OFFICIAL_TRAIN),
                                       ("test", num_test, NUM_TEST, OFFICIAL_TEST)):
        check_counts(**{f"num_{kind}": count})  # a slice would end before the last -count images
        images = "training images" if kind == "train" else "test images"
        if count > most:
            raise ValueError(f"num_{kind} is {count:,}, but Fashion-MNIST has only {most:,} {images}")
        if count > in_book and not is_full:
            raise ValueError(f"num_{kind} is {count:,}, but the book comes with {in_book:,} {images}. To use all "
                             f"{most:,}, set the environment variable D2LPAR_FULL=1 (in a notebook, run "
                             "%env D2LPAR_FULL=1); that downloads 30 MB, once")
    if num_train <= NUM_TRAIN and num_test <= NUM_TEST:
        with np.load(BOOK_IMAGES) as arrays:
            sets = {train: [arrays[file.in_book] for file in FILES[train]] for train in (True, False)}
    else:
        folder = full_set()
        sets = {train: [read_file(folder, file) for file in FILES[train]] for train in (True, False)}
    (train_images, train_labels), (test_images, test_labels) = sets[True], sets[False]
    return ((torch.from_numpy(train_images[:num_train]).unsqueeze(1), torch.from_numpy(train_labels[:num_train])),
            (torch.from_numpy(test_images[:num_test]).unsqueeze(1), torch.from_numpy(test_labels[:num_test])))


def full_set() -> Path:
    """The folder that holds the four official files, packed or not; torchvision downloads them if need be.

    Raises:
        DataError: if D2LPAR_DATA names a folder that does not hold them, or if the download fails.
    """
    if named := os.environ.get("D2LPAR_DATA"):
        named_folder = Path(named).expanduser().absolute()
        found = _folder_with_all(named_folder, named_folder / "FashionMNIST" / "raw")
        if found is None:
            raise DataError(f"D2LPAR_DATA is {named}, but {named_folder} does not hold the four files of "
                            f"Fashion-MNIST, such as {FILES[True][0].name} or {FILES[True][0].name}.gz, and neither "
                            "does FashionMNIST/raw in it. Put them there, or unset D2LPAR_DATA to download them")
        return found
    raw = _cache() / "FashionMNIST" / "raw"
    return _folder_with_all(DEBIAN, raw) or _download(raw)


def read_file(folder: Path, file: File) -> np.ndarray:
    """The images, uint8 of shape (n, 28, 28), or the labels, uint8 of shape (n,), of one official file.

    Raises:
        DataError: if the file cannot be read or unpacked, or if its bytes are not the official ones.
    """
    path = _find(folder, file)
    if path is None:
        raise DataError(f"{folder / file.name} is missing, and so is {file.name}.gz")
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as problem:
        raise DataError(f"{path} cannot be read: {problem}. Replace it, or set D2LPAR_DATA to a different "
                        "folder") from problem
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise DataError(f"{path} is not the official file: {len(content):,} bytes unpacked, and the wrong SHA-256. "
                        "Replace it, or set D2LPAR_DATA to a different folder")
    items = np.frombuffer(bytearray(content), np.uint8, offset=file.header_bytes)
    return items.reshape(-1, 28, 28) if "images" in file.name else items


def _find(folder: Path, file: File) -> Path | None:
    """The unpacked file if it is there, otherwise the packed one."""
    return next((path for path in (folder / file.name, folder / f"{file.name}.gz") if os.path.isfile(path)), None)


def _folder_with_all(*folders: Path) -> Path | None:
    return next((folder for folder in folders if all(_find(folder, file) for pair in FILES.values() for file in pair)),
                None)


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "d2lpar"
    except RuntimeError:
        raise DataError("This user has no home folder for a download. Set D2LPAR_DATA to a folder that holds the four "
                        "files of Fashion-MNIST") from None


def _download(raw: Path) -> Path:
    """Download the four files through torchvision, which checks their MD5 sums, into `raw`: all of them or none."""
    advice = "Or put the four files into a folder, and set D2LPAR_DATA to it"
    try:
        from torchvision.datasets import FashionMNIST
    except ImportError:
        raise DataError("D2LPAR_FULL=1 downloads Fashion-MNIST through torchvision, which is not installed: "
                        f"pip install torchvision. {advice}") from None
    before = socket.getdefaulttimeout()
    try:
        raw.mkdir(parents=True, exist_ok=True)
        with FileLock(raw / "lock"):  # several ranks may ask at once
            if _folder_with_all(raw) is None:
                with TemporaryDirectory(dir=raw) as fresh:
                    socket.setdefaulttimeout(30)  # for each read; torchvision sets none, and would wait forever
                    FashionMNIST(fresh, download=True)
                    for path in Path(fresh, "FashionMNIST", "raw").glob("*-ubyte"):
                        os.replace(path, raw / path.name)
    except (OSError, HTTPException, RuntimeError, EOFError, zlib.error) as problem:
        reason = " ".join(str(problem).split()).rstrip(" .")  # torchvision's has several lines
        raise DataError(f"Fashion-MNIST could not be downloaded to {raw}: {reason}. {advice}") from problem
    finally:
        socket.setdefaulttimeout(before)
    return raw
