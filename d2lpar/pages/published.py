"""What others have published: 301 trainings of one recipe, with addresses.

The recipe is that of the multi-GPU chapters of Dive into Deep Learning: ResNet-18 for small images on the 60,000 images
of Fashion-MNIST, ten epochs; batch size 256 and learning rate 0.1 on one GPU, 512 and 0.2 on two. Weights are drawn
from N(0, 0.01^2), but for those of layers that some pages make later. `trainings.csv` holds what the built notebooks in
the public history of four repositories print and draw.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

URL = "https://github.com/{}/blob/{}/chapter_computational-performance/{}"


class Training(NamedTuple):
    """One published training: where it stands, its setting, and the test accuracy after each epoch."""

    repository: str
    commit: str
    notebook: str
    date: str
    framework: str
    num_gpus: int
    batch_size: int
    lr: float
    accuracies: tuple[float, ...]

    @property
    def address(self) -> str:
        """The page that shows it, as it was on its day."""
        return URL.format(self.repository, self.commit, self.notebook)


class Pair(NamedTuple):
    """A page that a chapter quotes: one and two GPUs, seconds per epoch and final test accuracy as they are printed."""

    name: str
    seconds: tuple[float, float]
    accuracies: tuple[float, float]
    repository: str
    commit: str


QUOTED = [
    Pair("MXNet", (14.3, 14.2), (0.93, 0.91), "d2l-ai/d2l-en-colab", "9d51b01a05a0022daf45a43cd41a9e2c793c1b25"),
    Pair("PyTorch", (14.0, 8.8), (0.90, 0.89), "d2l-ai/d2l-pytorch-colab", "1b94b19315eef593e6a29a3321676059103aa6f7"),
    Pair("PyTorch, Chinese", (13.7, 8.4), (0.92, 0.89), "d2l-ai/d2l-zh-pytorch-colab",
         "292d94212a9cb4098f6c6044f1ac2b2a30d0e613"),
    Pair("PyTorch, later", (12.2, 7.5), (0.91, 0.73), "d2l-ai/d2l-pytorch-colab",
         "f8543710a7046a947464f0fa3ad0f8619d7613d3"),
    Pair("PyTorch, Chinese, later", (12.2, 7.4), (0.93, 0.67), "d2l-ai/d2l-zh-pytorch-colab",
         "10243a27370ebfa2bd6c3d8ef127e37c829b3051"),
]


@cache
def published_trainings() -> tuple[Training, ...]:
    """All 301, in the order of the file: MXNet's English pages first."""
    with open(Path(__file__).with_name("trainings.csv"), encoding="utf-8", newline="") as file:
        return tuple(Training(
            row["repository"], row["commit"], row["notebook"], row["date"], row["framework"], int(row["gpus"]),
            int(row["batch"]), float(row["lr"]), tuple(float(row[f"accuracy_{epoch}"]) for epoch in range(1, 11)),
        ) for row in csv.DictReader(file))
