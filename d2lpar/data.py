"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017) in memory, and a stand-in where it is not there.

`load_data_fashion_mnist` reads the four official files from the first of: the folder that the environment variable
D2LPAR_DATA names, the project's `data/`, the user's cache. `python -m d2lpar data` (`make data`) downloads them.
Where there are none, images made here take their place, and every printed line and figure says so.

Sizes: by default the first 3,584 training and 2,048 test images, a laptop's worth. D2LPAR_FULL=1 turns the whole book
to all 60,000 and 10,000.

What is checked: a download against the checksums of the official archives. Each time files are read, their form, and
that the first 3,584 and 2,048 images and labels are the official ones, by their SHA-256. Of later images, which only
D2LPAR_FULL=1 or larger numbers ask for, nothing but number, size and the range of the labels is checked then.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import struct
import tempfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchvision.datasets import FashionMNIST

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NUM_TRAIN, NUM_TEST = 3584, 2048  # 14 batches of 256 and 8 of 256
OFFICIAL_TRAIN, OFFICIAL_TEST = 60_000, 10_000
CLASSES = tuple(FashionMNIST.classes)


class _File(NamedTuple):
    """One of the four official files: what its header says, and how its content is known."""

    name: str
    magic: int
    item_shape: tuple[int, ...]
    num_known: int
    num_official: int
    sha256: str  # of the first `num_known` items, without the header


_FILES = {  # images and labels, keyed by "is it the training set?"
    True: (_File("train-images-idx3-ubyte", 2051, (28, 28), NUM_TRAIN, OFFICIAL_TRAIN,
                 "ebaa3539c421cfc1f8298338216b83f0fb495f33ccdd5e19a3d075f16d9a02f3"),
           _File("train-labels-idx1-ubyte", 2049, (), NUM_TRAIN, OFFICIAL_TRAIN,
                 "722c34a64b8ed17fc2c81eb933c626097874c37d3297c0942481c6d500417c2b")),
    False: (_File("t10k-images-idx3-ubyte", 2051, (28, 28), NUM_TEST, OFFICIAL_TEST,
                  "857b72c05ba3e79276eec0ac60bba3a89d06ce58b830436e41475e104f90110f"),
            _File("t10k-labels-idx1-ubyte", 2049, (), NUM_TEST, OFFICIAL_TEST,
                  "56ecf07f3939c9adb372cce2500286eb185b77a08ec47e807155a88e3e9b2bf9")),
}
_PART = ".download-"  # begins the names of folders that are being downloaded into
_standin_in_use = False


class DataError(Exception):
    """The data cannot be used, or could not be had; the message names the file and says what to do."""


class Batches:
    """Minibatches of images and labels that lie in memory, as often as one asks.

    Iterating gives pairs X, float32 of shape (B, 1, 28, 28) from 0 to 1, and y, int64 of shape (B,); the last pair may
    be smaller. Training batches are drawn in a new order each time, the same orders for the same seed.
    All this is the work of one thread, whatever PyTorch's number of threads.

    Args:
        images: uint8 of shape (n, 1, 28, 28) or any other, n at least 1.
        labels: whole numbers from 0 to 9, shape (n,).

    Raises:
        ValueError: if an argument is not as it must be.
    """

    def __init__(self, images: Tensor, labels: Tensor, batch_size: int, shuffle_seed: int | None = None) -> None:
        _check_count("batch_size", batch_size)
        _check_seed("shuffle_seed", 0 if shuffle_seed is None else shuffle_seed)
        _check_examples(images, labels)
        self.images, self.labels, self.batch_size = images, labels, batch_size
        self._generator = None if shuffle_seed is None else torch.Generator().manual_seed(shuffle_seed)

    def __len__(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = self.images.numpy(), self.labels.numpy()
        count = len(labels)
        order = np.arange(count) if self._generator is None else torch.randperm(count, generator=self._generator).numpy()
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
        ValueError: if an argument is no whole number, a number below 1, or more than the 60,000 and 10,000 there are.
        DataError: if a data file is there but cannot be used, or holds fewer; nothing is read from half a file.
    """
    _check_count("batch_size", batch_size)
    _check_seed("seed", seed)
    book_train, book_test = book_sizes()
    train, test = _load(book_train if num_train is None else num_train, book_test if num_test is None else num_test)
    train_iter, test_iter = Batches(*train, batch_size, shuffle_seed=seed), Batches(*test, batch_size)
    print(_source_line(len(train_iter.labels), len(test_iter.labels)))
    return train_iter, test_iter


def book_sizes() -> tuple[int, int]:
    """Training and test images that the book's pages use: a laptop's worth, or all with D2LPAR_FULL=1.

    Raises:
        DataError: if D2LPAR_FULL is set to something else than 1 or 0, or true, yes, on, false, no or off.
    """
    setting = os.environ.get("D2LPAR_FULL", "")
    word = setting.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return OFFICIAL_TRAIN, OFFICIAL_TEST
    if word in ("", "0", "false", "no", "off"):
        return NUM_TRAIN, NUM_TEST
    raise DataError(f"D2LPAR_FULL is {setting!r}, it must be 1 or 0.")


def find_data() -> Path | None:
    """The folder that holds `FashionMNIST/raw`, or None; D2LPAR_DATA=none asks for the stand-in.

    A relative D2LPAR_DATA is taken from the top folder of the book (without a checkout, from the working folder).

    Raises:
        DataError: if D2LPAR_DATA names a folder without the files.
    """
    named = os.environ.get("D2LPAR_DATA")
    if named == "none":
        return None
    if not named:
        return next((root for root in _own_roots() if os.path.isdir(_raw(root))), None)  # not where it is forbidden
    root = _named_root(named)
    problem = f"there is no folder {_raw(root)}"
    try:
        if stat.S_ISDIR(os.stat(_raw(root)).st_mode):
            return root
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        problem = f"{_raw(root)}: {error.strerror}"
    raise DataError(f"D2LPAR_DATA is {named}, but {problem}. Run `make data` to download it there, or unset D2LPAR_DATA.")


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


def download_fashion_mnist(root: str | Path | None = None) -> Path:
    """Download the official files (30 MB) through torchvision, check them, and only then put them in place.

    Files that are there and whole stay; a broken one is named, and the set replaced. Interrupted at any moment, it
    leaves what was there before; what a killed one left behind goes with the next. Of several into one folder, one
    downloads and the others wait for it (on Windows each downloads).

    Args:
        root: the folder that gets `FashionMNIST/raw`; by default D2LPAR_DATA, else the project's `data/`, else the
            user's cache.

    Returns:
        `root`, as an absolute path.

    Raises:
        ValueError: if `root` is no name of a folder.
        DataError: if the folder cannot be written, or the download fails or comes out broken.
    """
    root = _place_for_download(root)
    book_sizes()  # raises before anything is done
    with _only_download_into(root):
        fault = _fault(root)
        if not fault:
            print(f"Fashion-MNIST is in {root} already")
            return root
        if os.path.exists(_raw(root)):
            print(f"{fault}\nDownloading it again.")
        _replace_set(root)
    print(f"Fashion-MNIST is in {root}")
    return root


def _fault(root: Path) -> str:
    """What is wrong with the images in `root`; empty where they are those that the book uses."""
    try:
        for is_train, count in zip((True, False), book_sizes()):
            _read_set(root, is_train, count)
    except DataError as problem:
        return str(problem)
    return ""


def _replace_set(root: Path) -> None:
    try:
        with _part_of(root) as fresh:
            _fetch(fresh)
            _put_in_place(fresh, root)
    except (OSError, HTTPException, RuntimeError, EOFError, zlib.error) as problem:
        reason = " ".join(str(problem).split()).rstrip(" .")  # torchvision's has several lines
        raise DataError(f"Fashion-MNIST could not be downloaded: {reason}. Nothing was kept. "
                        "Without it the book runs on a stand-in.") from problem


def _fetch(fresh: Path) -> None:
    with _timeout(30):
        FashionMNIST(str(fresh), download=True)
    if fault := _fault(fresh):
        raise RuntimeError(fault)
    for archive in _raw(fresh).glob("*.gz"):
        archive.unlink()  # unpacked beside it


def _put_in_place(fresh: Path, root: Path) -> None:
    place = root / "FashionMNIST"
    try:
        if place.exists() and _fault(root):
            os.replace(place, fresh / "old")
        os.replace(fresh / "FashionMNIST", place)
    except OSError:
        if _fault(root):  # else a download that did not wait for this one has put the same files there
            raise


@contextmanager
def _part_of(root: Path) -> Iterator[Path]:
    """A folder in `root` to download into; at the end it is gone, and an old set that it holds is back if need be."""
    try:
        fresh = Path(tempfile.mkdtemp(prefix=_PART, dir=root))
    except OSError as problem:
        raise _not_writable(root, problem) from problem
    place, old = root / "FashionMNIST", fresh / "old"
    try:
        yield fresh
    finally:
        if old.exists() and not place.exists():
            os.replace(old, place)
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def _only_download_into(root: Path) -> Iterator[None]:
    """Make `root` and wait for a turn in it; clear away what killed downloads left, at the end also an empty `root`."""
    try:
        new, lock = _make_and_lock(root)
    except OSError as problem:
        raise _not_writable(root, problem) from problem
    try:
        if lock is not None:
            for leftover in root.glob(_PART + "*"):
                shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        with suppress(OSError):  # not empty
            for folder in new:
                folder.rmdir()
        if lock is not None:
            os.close(lock)


def _make_and_lock(root: Path) -> tuple[list[Path], int | None]:
    """The folders that were made for `root`, inner ones first, and the lock, None where the system has none."""
    while True:
        new = [folder for folder in root.parents if not folder.exists()]
        root.parent.mkdir(parents=True, exist_ok=True)
        try:
            root.mkdir()
            new.insert(0, root)
        except FileExistsError:
            if not root.is_dir():
                raise
        lock = _lock(root)
        with suppress(FileNotFoundError):
            if lock is None or os.path.samestat(os.fstat(lock), os.stat(root)):
                return new, lock
        os.close(lock)  # of a folder that a download which failed has taken away again


def _lock(folder: Path) -> int | None:
    """Wait until no other process has this lock; it goes when closed or with its process, and leaves no file."""
    if fcntl is None:
        return None
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another download into {folder} is running; waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        return lock
    except BaseException as problem:
        os.close(lock)
        if isinstance(problem, OSError):  # some network drives have none
            return None
        raise


def _not_writable(root: Path, problem: OSError) -> DataError:
    return DataError(f"{root} cannot be written: {problem.strerror}. "
                     "Name a folder that can be in the environment variable D2LPAR_DATA.")


def _raw(root: Path) -> Path:
    return root / "FashionMNIST" / "raw"


def _project() -> Path | None:
    """The top folder of the checkout of the book that this file lies in, or None."""
    folder = Path(__file__).resolve().parents[1]
    return folder if (folder / "_toc.yml").exists() else None


def _own_roots() -> list[Path]:
    """The project's `data/`, where this is a checkout of it, and the user's cache, if the user has a home."""
    project = _project()
    roots = [project / "data"] if project else []
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with suppress(RuntimeError):  # no home
        roots.append((cache if cache.is_absolute() else Path.home() / ".cache") / "d2lpar")
    return roots


def _named_root(named: str) -> Path:
    """The one place that D2LPAR_DATA means, whatever the working folder of a notebook or a script is."""
    try:
        return (_project() or Path.cwd()) / Path(named).expanduser()
    except RuntimeError as problem:
        raise DataError(f"D2LPAR_DATA is {named}, but {str(problem).rstrip('.')}.") from problem


def _place_for_download(root: str | Path | None) -> Path:
    if root is not None:
        if not isinstance(root, str | os.PathLike) or not os.fspath(root):
            raise ValueError(f"root must be the name of a folder, got {root!r}")
        return Path(root).absolute()
    named = os.environ.get("D2LPAR_DATA")
    if named and named != "none":
        return _named_root(named)
    if roots := _own_roots():
        return roots[0]
    raise DataError("This user has no home folder for the data. Name a folder in the environment variable D2LPAR_DATA.")


def _check_count(name: str, value: int, most: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if most is not None and value > most:
        raise ValueError(f"{name} is {value:,}, but Fashion-MNIST has only {most:,} such images")


def _check_seed(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise ValueError(f"{name} must be a whole number from 0 to 2**64 - 1, got {value!r}")


def _check_examples(images: Tensor, labels: Tensor) -> None:
    for name, tensor in (("images", images), ("labels", labels)):
        if not isinstance(tensor, Tensor) or tensor.device.type != "cpu":
            raise ValueError(f"{name} must be a tensor in the CPU's memory, got {getattr(tensor, 'device', type(tensor))}")
    if images.dtype is not torch.uint8:
        raise ValueError(f"images must be uint8, got {images.dtype}")
    if len(images) != len(labels) or len(labels) == 0:
        raise ValueError(f"there must be images and as many labels, got {len(images)} and {len(labels)}")
    if labels.dtype.is_floating_point or labels.dtype is torch.bool or labels.ndim != 1:
        raise ValueError(f"labels must be whole numbers of shape (n,), got {labels.dtype} of shape {tuple(labels.shape)}")
    low, high = labels.numpy().min(), labels.numpy().max()
    if low < 0 or high > 9:
        raise ValueError(f"labels must be from 0 to 9, got {low if low < 0 else high}")


def _load(num_train: int, num_test: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The first images and labels of both sets as uint8, shapes (n, 1, 28, 28) and (n,); remembers whether real."""
    global _standin_in_use
    _check_count("num_train", num_train, OFFICIAL_TRAIN)
    _check_count("num_test", num_test, OFFICIAL_TEST)
    root = find_data()
    if root is None:
        train, test = _standin(True, num_train), _standin(False, num_test)
    else:
        train, test = _read_set(root, True, num_train), _read_set(root, False, num_test)
    _standin_in_use = root is None
    return train, test


def _source_line(num_train: int, num_test: int) -> str:
    sizes = f"{num_train:,} training and {num_test:,} test images"
    if not _standin_in_use:
        return f"Fashion-MNIST, {sizes}"
    return (f"STAND-IN images, not Fashion-MNIST, {sizes}; "
            "d2lpar.data.download_fashion_mnist() gets the real ones (30 MB)")


def _read_set(root: Path, is_train: bool, count: int) -> tuple[Tensor, Tensor]:
    """The first `count` images and labels."""
    image_path, label_path = (_raw(root) / file.name for file in _FILES[is_train])
    images, labels = (_read_file(root, file) for file in _FILES[is_train])
    if len(images) != len(labels):
        raise DataError(f"{image_path} holds {len(images)} images, {label_path} {len(labels)} labels. {_ADVICE}")
    if labels.max() > 9:
        raise DataError(f"{label_path} is corrupt: it holds the label {labels.max()}, labels go from 0 to 9. {_ADVICE}")
    if count > len(images):
        raise DataError(f"{image_path} holds {len(images):,} images, {count:,} are asked for. "
                        "`D2LPAR_FULL=1 make data` gets all.")
    return torch.from_numpy(images[:count]).unsqueeze(1), torch.from_numpy(labels[:count])


_ADVICE = "`make data` replaces it."


def _read_file(root: Path, file: _File) -> np.ndarray:
    """The items of one file as uint8, or DataError; it is read once, so that what was checked is what is used."""
    path = _raw(root) / file.name
    try:
        content = bytearray(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path} is missing. {_ADVICE}") from None
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {problem.strerror}.") from problem
    header = struct.Struct(f">{2 + len(file.item_shape)}i")
    _check_form(path, file, header, content)
    items = np.frombuffer(content, np.uint8, offset=header.size).reshape(-1, *file.item_shape)
    if hashlib.sha256(items[:file.num_known]).hexdigest() != file.sha256:
        what = "images" if file.item_shape else "labels"
        raise DataError(f"{path} is not Fashion-MNIST: the SHA-256 of its first {file.num_known:,} {what} "
                        f"is not that of the official ones. {_ADVICE}")
    return items


def _check_form(path: Path, file: _File, header: struct.Struct, content: bytearray) -> None:
    """Raise DataError unless the header is of this kind of file and the content as long as the header says."""
    size = len(content)
    if size < header.size:
        raise DataError(f"{path} is truncated: {size} bytes, not even a header. {_ADVICE}")
    magic, count, *shape = found = header.unpack_from(content)
    if magic != file.magic or tuple(shape) != file.item_shape or not file.num_known <= count <= file.num_official:
        raise DataError(f"{path} is corrupt: its header is {found}, expected "
                        f"{(file.magic, f'{file.num_known} to {file.num_official}', *file.item_shape)}. {_ADVICE}")
    expected = header.size + count * int(np.prod(shape, dtype=int))
    if size != expected:
        what = "truncated" if size < expected else "corrupt"
        raise DataError(f"{path} is {what}: {size:,} bytes, its header promises {expected:,}. {_ADVICE}")


@contextmanager
def _timeout(seconds: float) -> Generator[None]:
    """Let no connection opened in this block wait longer than this for its next byte."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


_CHUNK = 1000  # stand-in images per seed, so that a prefix of a larger set is the smaller set


@cache
def _standin(is_train: bool, count: int) -> tuple[Tensor, Tensor]:
    """Learnable images: each class is a smooth random pattern, shifted, dimmed and covered with noise per image.

    PyTorch draws, NumPy calculates: in one thread, as for the batches.
    """
    patterns = _blur(torch.rand(10, 28, 28, generator=torch.Generator().manual_seed(7)).numpy())
    chunks = [_standin_chunk(patterns, 1_000 * is_train + chunk) for chunk in range(-(-count // _CHUNK))]
    images, labels = (np.concatenate(parts)[:count] for parts in zip(*chunks))
    return torch.from_numpy(images), torch.from_numpy(labels)


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
