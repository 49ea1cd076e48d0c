"""The official files of Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): where they are looked for, and what is checked.

They are taken from the first of: the folder that the environment variable D2LPAR_DATA names, the project's `data/`, the
user's cache. The book uses the first 3,584 training and 2,048 test images, a laptop's worth; D2LPAR_FULL=1 turns it to
all 60,000 and 10,000.

What is checked each time files are read: their form, and that the first 3,584 and 2,048 images and labels are the
official ones, by their SHA-256. Of later images, which only D2LPAR_FULL=1 or larger numbers ask for, nothing but
number, size and the range of the labels is checked then. (A download is checked as a whole.)
"""

from __future__ import annotations

import hashlib
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

NUM_TRAIN, NUM_TEST = 3584, 2048  # 14 batches of 256 and 8 of 256
OFFICIAL_TRAIN, OFFICIAL_TEST = 60_000, 10_000


class File(NamedTuple):
    """One of the four official files: what its header says, and how its content is known."""

    name: str
    magic: int
    item_shape: tuple[int, ...]
    num_known: int
    num_official: int
    sha256: str  # of the first `num_known` items, without the header


FILES = {  # images and labels, keyed by "is it the training set?"
    True: (File("train-images-idx3-ubyte", 2051, (28, 28), NUM_TRAIN, OFFICIAL_TRAIN,
                 "ebaa3539c421cfc1f8298338216b83f0fb495f33ccdd5e19a3d075f16d9a02f3"),
           File("train-labels-idx1-ubyte", 2049, (), NUM_TRAIN, OFFICIAL_TRAIN,
                 "722c34a64b8ed17fc2c81eb933c626097874c37d3297c0942481c6d500417c2b")),
    False: (File("t10k-images-idx3-ubyte", 2051, (28, 28), NUM_TEST, OFFICIAL_TEST,
                  "857b72c05ba3e79276eec0ac60bba3a89d06ce58b830436e41475e104f90110f"),
            File("t10k-labels-idx1-ubyte", 2049, (), NUM_TEST, OFFICIAL_TEST,
                  "56ecf07f3939c9adb372cce2500286eb185b77a08ec47e807155a88e3e9b2bf9")),
}


class DataError(Exception):
    """The data cannot be used, or could not be had; the message names the file and says what to do."""


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
    # os.path.isdir says no also where it is forbidden to look
    if not named:
        return next((root for root in own_roots() if os.path.isdir(raw_folder(root))), None)
    if not os.path.isdir(raw_folder(named_root(named))):
        raise DataError(f"D2LPAR_DATA is {named}, but there is no folder {raw_folder(named_root(named))} that can be "
                        "read. Run `make data` to download it there, or unset D2LPAR_DATA.")
    return named_root(named)


def raw_folder(root: Path) -> Path:
    """Where the four files lie below `root`."""
    return root / "FashionMNIST" / "raw"


def _project() -> Path | None:
    """The top folder of the checkout of the book that this file lies in, or None."""
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / "_toc.yml").exists() else None


def own_roots() -> list[Path]:
    """The project's `data/`, where this is a checkout of it, and the user's cache, if the user has a home."""
    project = _project()
    roots = [project / "data"] if project else []
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with suppress(RuntimeError):  # no home
        roots.append((cache if cache.is_absolute() else Path.home() / ".cache") / "d2lpar")
    return roots


def named_root(named: str) -> Path:
    """The one place that D2LPAR_DATA means, whatever the working folder of a notebook or a script is."""
    return (_project() or Path.cwd()) / Path(named).expanduser()


def read_set(root: Path, is_train: bool, count: int) -> tuple[Tensor, Tensor]:
    """The first `count` images and labels."""
    image_path, label_path = (raw_folder(root) / file.name for file in FILES[is_train])
    images, labels = (_read_file(root, file) for file in FILES[is_train])
    if len(images) != len(labels):
        raise DataError(f"{image_path} holds {len(images)} images, {label_path} {len(labels)} labels. {_ADVICE}")
    if labels.max() > 9:
        raise DataError(f"{label_path} is corrupt: it holds the label {labels.max()}, labels go from 0 to 9. {_ADVICE}")
    if count > len(images):
        raise DataError(f"{image_path} holds {len(images):,} images, {count:,} are asked for. "
                        "`D2LPAR_FULL=1 make data` gets all.")
    return torch.from_numpy(images[:count]).unsqueeze(1), torch.from_numpy(labels[:count])


_ADVICE = "`make data` replaces it."


def _read_file(root: Path, file: File) -> np.ndarray:
    """The items of one file as uint8, or DataError; it is read once, so that what was checked is what is used."""
    path = raw_folder(root) / file.name
    try:
        content = bytearray(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path} is missing. {_ADVICE}") from None
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {problem.strerror}.") from problem
    header = struct.Struct(f">{2 + len(file.item_shape)}i")
    _check_form(path, file, header, content)
    items = np.frombuffer(content, np.uint8, offset=header.size).reshape(-1, *file.item_shape)
    if hashlib.sha256(items[:file.num_known].tobytes()).hexdigest() != file.sha256:
        what = "images" if file.item_shape else "labels"
        raise DataError(f"{path} is not Fashion-MNIST: the SHA-256 of its first {file.num_known:,} {what} "
                        f"is not that of the official ones. {_ADVICE}")
    return items


def _check_form(path: Path, file: File, header: struct.Struct, content: bytearray) -> None:
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
