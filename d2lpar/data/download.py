"""Downloading Fashion-MNIST: through torchvision, checked, and whole or not at all (`make data`)."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

from filelock import FileLock, Timeout
from torchvision.datasets import FashionMNIST

from d2lpar.data.official_files import DataError, book_sizes, named_root, own_roots, raw_folder, read_set

_PART = ".download-"  # begins the names of folders that are being downloaded into


def download_fashion_mnist(root: str | Path | None = None) -> Path:
    """Download the official files (30 MB) through torchvision, check them, and only then put them in place.

    Files that are there and whole stay; a set with a broken one is named, and replaced. A download that fails or is
    interrupted leaves what was there before; what a killed one left behind goes with the next. Of several into one
    folder, one downloads and the others wait for it.

    Args:
        root: the folder that gets `FashionMNIST/raw`; by default D2LPAR_DATA, else the project's `data/`, else the
            user's cache.

    Returns:
        `root`, as an absolute path.

    Raises:
        DataError: if the folder cannot be written, or the download fails or comes out broken.
    """
    root = _place_for_download(root)
    book_sizes()  # raises before anything is done
    with _turn(root):
        fault = _fault(root)
        if not fault:
            print(f"Fashion-MNIST is in {root} already")
            return root
        if os.path.exists(raw_folder(root)):
            print(f"{fault}\nDownloading it again.")
        _replace_set(root)
    print(f"Fashion-MNIST is in {root}")
    return root


def _fault(root: Path) -> str:
    """What is wrong with the images in `root`; empty where they are those that the book uses."""
    try:
        for is_train, count in zip((True, False), book_sizes()):
            read_set(root, is_train, count)
    except DataError as problem:
        return str(problem)
    return ""


def _replace_set(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        for leftover in root.glob(_PART + "*"):  # by downloads that were killed
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_PART, dir=root) as fresh:
            _fetch(Path(fresh))
            place, old = root / "FashionMNIST", Path(fresh, "old")
            try:
                if place.exists():
                    os.replace(place, old)
                os.replace(Path(fresh, "FashionMNIST"), place)
            finally:
                if old.exists() and not place.exists():  # stopped between the two
                    os.replace(old, place)
    except (PermissionError, FileExistsError, NotADirectoryError) as problem:
        raise DataError(f"{root} cannot be written: {problem.strerror}. "
                        "Name a folder that can be in the environment variable D2LPAR_DATA.") from problem
    except (OSError, HTTPException, RuntimeError, EOFError, zlib.error) as problem:
        reason = " ".join(str(problem).split()).rstrip(" .")  # torchvision's has several lines
        raise DataError(f"Fashion-MNIST could not be downloaded: {reason}. Nothing was kept. "
                        "Without it the book runs on a stand-in.") from problem
    finally:
        with suppress(OSError):  # it holds something
            root.rmdir()


def _fetch(fresh: Path) -> None:
    with _timeout(30):
        FashionMNIST(str(fresh), download=True)
    if fault := _fault(fresh):
        raise RuntimeError(fault)
    for archive in raw_folder(fresh).glob("*.gz"):
        archive.unlink()  # unpacked beside it


@contextmanager
def _turn(root: Path) -> Generator[None]:
    """Wait until nobody else downloads into `root`. The lock lies elsewhere: a failed download takes `root` away."""
    user = getattr(os, "getuid", int)()  # on Windows this folder is each user's own
    lock = FileLock(Path(tempfile.gettempdir(), f"d2lpar-{user}-{zlib.crc32(os.fsencode(root.resolve())):08x}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        print(f"Another download into {root} is running; waiting for it.", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _place_for_download(root: str | Path | None) -> Path:
    if root is not None:
        return Path(root).absolute()
    named = os.environ.get("D2LPAR_DATA")
    if named and named != "none":
        return named_root(named)
    if roots := own_roots():
        return roots[0]
    raise DataError("This user has no home folder for the data. Name a folder in the environment variable D2LPAR_DATA.")


@contextmanager
def _timeout(seconds: float) -> Generator[None]:
    """Let no connection opened in this block wait longer than this for its next byte."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
