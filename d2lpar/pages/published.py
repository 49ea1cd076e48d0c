"""What others have published: 301 trainings of one recipe, with their seconds and addresses.

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
    """One published training: where it stands, its setting, its test accuracies, and seconds per epoch as printed."""

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
        return URL.format(self.repository, self.commit, self.notebook)


@cache
def published_trainings() -> tuple[Training, ...]:
    """All 301, in the order of the file: MXNet's English pages first."""
    with open(Path(__file__).with_name("trainings.csv"), encoding="utf-8", newline="") as file:
        return tuple(Training(
            row["repository"], row["commit"], row["notebook"], row["date"], row["framework"], int(row["gpus"]),
            int(row["batch"]), float(row["lr"]), tuple(float(row[f"accuracy_{epoch}"]) for epoch in range(1, 11)),
            float(row["seconds"])) for row in csv.DictReader(file))
