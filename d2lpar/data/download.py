"""Downloading Fashion-MNIST: through torchvision, checked, and whole or not at all (`make data`)."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

from torchvision.datasets import FashionMNIST

from d2lpar.data.official_files import DataError, book_sizes, check_folder, named_root, own_roots, raw_folder, read_set

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_PART = ".download-"  # begins the names of folders that are being downloaded into


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
    for archive in raw_folder(fresh).glob("*.gz"):
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
def _part_of(root: Path) -> Generator[Path]:
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
def _only_download_into(root: Path) -> Generator[None]:
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
            with suppress(FileNotFoundError):  # there when it was to be made, and gone by now
                if not stat.S_ISDIR(os.lstat(root).st_mode) and not root.is_dir():
                    raise
        try:
            lock = _lock(root)
        except FileNotFoundError:  # a download that failed has taken it away again
            continue
        with suppress(FileNotFoundError):
            if lock is None or os.path.samestat(os.fstat(lock), os.stat(root)):
                return new, lock
        os.close(lock)  # of a folder that is gone, as above


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


def _place_for_download(root: str | Path | None) -> Path:
    if root is not None:
        return check_folder(root).absolute()
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
