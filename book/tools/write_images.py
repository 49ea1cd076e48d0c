"""Write the images that come with the package, `d2lpar/fashion_mnist.npz`: `python book/tools/write_images.py FOLDER`.

FOLDER holds the four official files, packed or not; Debian's package `dataset-fashion-mnist` puts them into
/usr/share/datasets/fashion-mnist. Their decoded bytes are checked, and the same files give the same arrays.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from d2lpar import data


def write(folder: Path, target: Path = data.BOOK_IMAGES) -> None:
    """Store the first images and labels of the files in `folder`.

    Raises:
        DataError: if a file is missing, or its bytes are not the official ones; then nothing is written.
    """
    arrays = {file.in_book: data.read_file(folder, file)[:count]
              for is_train, count in ((True, data.NUM_TRAIN), (False, data.NUM_TEST))
              for file in data.FILES[is_train]}
    np.savez_compressed(target, allow_pickle=False, **arrays)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        write(Path(sys.argv[1]))
    except data.DataError as problem:
        sys.exit(str(problem))
