"""The settings of the case study of the last minibatch: one recipe, with every combination of the suspects.

The recipe comes from the multi-GPU chapters of Dive into Deep Learning, scaled down: ResNet-18 of width 8, ten epochs,
batch size 16 at learning rate 0.1 and 32 at 0.2, and 3,558 images. The last minibatch of an epoch is then the same
fraction of a batch as in that book: 6 of 32 for 96 of 512, and 6 of 16 for 96 of 256. `book/lab/study.py` trains all
settings.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from d2lpar.data import OFFICIAL_TRAIN

LAST_STEPS, STARTS, NORMS = ("full", "damped", "dropped"), ("fresh", "used"), ("batch", "group")


class Size(NamedTuple):
    """How large a model of the recipe is; `batch_size` is the batch size for one device.

    The width is at least 8: PyTorch 2.15 with only AVX2 crashes in a strided 1x1 convolution of 4 channels in
    channels_last.
    """

    width: int
    batch_size: int
    num_train: int
    num_test: int
    num_epochs: int


SMALL = Size(width=8, batch_size=16, num_train=3558, num_test=1024, num_epochs=10)
FULL = Size(width=64, batch_size=256, num_train=60_000, num_test=10_000, num_epochs=10)


class Setting(NamedTuple):
    """One way to train.

    `last` is the step on the last, partial minibatch of an epoch: "full" divides its summed loss by the number of its
    examples, "damped" divides it by the batch size, and "dropped" leaves the minibatch out. `start` is "fresh" or
    "used": the network after a run on one device, with fresh weights, but with its biases and BatchNorm layers as they
    were. `norm` is "batch", or "group" for group normalisation instead.
    """

    last: str
    start: str
    num_devices: int
    batch_size: int
    lr: float
    num_train: int
    norm: str = "batch"


def settings(size: Size = SMALL) -> list[Setting]:
    """The first 15: every combination of last step, devices and recipe, and a used network where the pages have one."""
    n, b = size.num_train, size.batch_size
    fresh = [Setting(last, "fresh", k, batch_size, lr, n)
             for k, (batch_size, lr), last in product((1, 2), ((b, 0.1), (2 * b, 0.2)), LAST_STEPS)]
    return fresh + [Setting(last, "used", 2, 2 * b, 0.2, n) for last in LAST_STEPS]


def predicted(size: Size = SMALL) -> dict[str, Setting]:
    """Four more settings, by what they change in the full last step on two devices. A prediction was written for each.

    "Cost" means how much accuracy the last step of an epoch costs: the mean over epochs 4 to 10, the median over seeds.
    The predictions: a last minibatch of 31 of 32 costs at most 0.02; one of 1 costs more than one of 6, because
    BatchNorm then normalises an image by itself; half the learning rate costs less than half as much; and so does group
    normalisation, because most of the cost comes from outdated running statistics, and it has none.
    """
    n, b = size.num_train, 2 * size.batch_size
    full = Setting("full", "fresh", 2, b, 0.2, n)
    whole = n - n % b
    all_but_one = whole + b - 1 if whole + b <= OFFICIAL_TRAIN else whole - 1  # there are no more images
    return {
        f"a last minibatch of {b - 1}": full._replace(num_train=all_but_one),
        "a last minibatch of 1": full._replace(num_train=whole + 1),
        "half the learning rate": full._replace(lr=0.1),
        "group normalisation": full._replace(norm="group"),
    }
