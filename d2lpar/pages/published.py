"""What others have published: 301 runs of one recipe, with their seconds and addresses, and 863 for control.

The recipe is that of the multi-GPU chapters of Dive into Deep Learning: ResNet-18 for small images on the 60,000 images
of Fashion-MNIST, ten epochs; batch size 256 and learning rate 0.1 on one GPU, 512 and 0.2 on two. Weights are drawn
from N(0, 0.01^2), but for those of layers that some pages make later. `published_runs.csv` holds what the built
notebooks in the public history of four repositories print and draw.

`controls.csv` holds runs of the same book's pages for one device, from the same history: ten epochs of the same images,
on ResNet's and DenseNet's pages in 96 x 96 pixels. There both libraries take the last, partial minibatch at the full
rate, and each run starts afresh. Curves that were found twice are there once; 6 to 9 outputs a page could not be read.
Eight of its 871 rows are not runs of their own: the first builds of PyTorch's pages, of June 2020, show a curve of
MXNet's, to the last digit, and are left out.

`published_lenet.csv` is for the page on where numbers were measured. It holds what the built pages on data parallelism
from scratch print: LeNet on one GPU and on two. Builds that print and draw the same are there once.

All files hold numbers only, no text and no code.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

URL = "https://github.com/{}/blob/{}/chapter_{}/{}"


class PublishedRun(NamedTuple):
    """One published run: where it stands, its setting, its test accuracies, and seconds per epoch as printed."""

    repository: str
    commit: str
    notebook: str
    date: str
    framework: str
    num_gpus: int
    batch_size: int
    lr: float
    accuracies: tuple[float, ...]
    epoch_s: float

    @property
    def address(self) -> str:
        """The page that shows it, as it was on its day."""
        return URL.format(self.repository, self.commit, "computational-performance", self.notebook)


class Control(NamedTuple):
    """One published run on one device: where it stands, its page, such as "resnet", and its test accuracies."""

    repository: str
    commit: str
    notebook: str
    date: str
    framework: str
    accuracies: tuple[float, ...]

    @property
    def page(self) -> str:
        """The name of the notebook, without its ending."""
        return self.notebook.removesuffix(".ipynb")

    @property
    def address(self) -> str:
        """The page that shows it, as it was on its day."""
        return URL.format(self.repository, self.commit, "convolutional-modern", self.notebook)


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a table that is stored next to this module."""
    with open(Path(__file__).with_name(name), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _accuracies(row: dict[str, str]) -> tuple[float, ...]:
    return tuple(float(row[f"accuracy_{epoch}"]) for epoch in range(1, 11))


@cache
def published_runs() -> tuple[PublishedRun, ...]:
    """All 301, in the order of the file: MXNet's English pages first."""
    return tuple(PublishedRun(row["repository"], row["commit"], row["notebook"], row["date"], row["framework"],
                          int(row["gpus"]), int(row["batch"]), float(row["lr"]), _accuracies(row),
                          float(row["seconds"])) for row in rows_of("published_runs.csv"))


def published_pairs(framework: str) -> list[tuple[float, float]]:
    """The seconds per epoch on one GPU and on two, for each page of `framework` that prints both."""
    pages: dict[tuple[str, str, str], dict[int, float]] = {}
    for run in published_runs():
        if run.framework == framework:
            pages.setdefault((run.repository, run.commit, run.notebook), {})[run.num_gpus] = run.epoch_s
    return [(page[1], page[2]) for page in pages.values() if len(page) == 2]


@cache
def published_controls() -> tuple[Control, ...]:
    """All 863, in the order of the file: MXNet's first; a curve that stands on its page already is left out."""
    found: dict[tuple[str, tuple[float, ...]], Control] = {}
    for row in rows_of("controls.csv"):
        control = Control(row["repository"], row["commit"], row["notebook"], row["date"], row["framework"],
                          _accuracies(row))
        found.setdefault((control.page, control.accuracies), control)
    return tuple(found.values())
