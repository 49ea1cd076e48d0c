"""The cases that need only one process: the loader, handing work to the devices' threads, and importing the package."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import FashionMNIST, VisionDataset
from torchvision.transforms import ToTensor

from bench_cases import WrongResult
from bench_report import Times
from d2lpar.data import Batches
from d2lpar.devices import run_on_devices
from d2lpar.timing import time_each_repeat


def dispatch_times(k: int, repeats: int, calls: int = 200) -> Times:
    """Seconds of `calls` calls of nothing on k devices, and of the same in the standard library's thread pools."""
    pools = [ThreadPoolExecutor(1) for _ in range(k)]

    def ours() -> None:
        for _ in range(calls):
            run_on_devices(_nothing, range(k))

    def theirs() -> None:
        for _ in range(calls):
            for future in [pool.submit(_nothing, rank) for rank, pool in enumerate(pools)]:
                future.result()

    try:
        return time_each_repeat({"ours": ours, "pools": theirs}, repeats)
    finally:
        for pool in pools:
            pool.shutdown()


def _nothing(rank: int) -> None:
    """Take no time."""


def import_times(repeats: int) -> Times:
    """Seconds of a fresh Python that imports the package, and of one that imports PyTorch alone."""
    def importing(name: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {name}"], check=True)

    return time_each_repeat({name: partial(importing, name) for name in ("d2lpar", "torch")}, repeats)


def loader_times(batches: Batches, repeats: int) -> Times:
    """Seconds of an epoch of our iterator, and of the same images from torchvision in a DataLoader of one process.

    Raises:
        WrongResult: if the two give different batches.
    """
    theirs = torchvision_dataset(batches)
    in_order, size = Batches(batches.images, batches.labels, batches.batch_size), batches.batch_size
    for (X, y), (their_X, their_y) in zip(in_order, DataLoader(theirs, size), strict=True):
        if not (torch.equal(X, their_X) and torch.equal(y, their_y)):
            raise WrongResult("our iterator and torchvision give different images")
    cases = {"ours": batches, "torchvision": DataLoader(theirs, size, shuffle=True)}
    return time_each_repeat({name: lambda loader=loader: [None for _ in loader] for name, loader in cases.items()},
                             repeats)


def torchvision_dataset(batches: Batches) -> FashionMNIST:
    """Torchvision's own data set, around images that are in memory already."""
    data = FashionMNIST.__new__(FashionMNIST)  # not __init__, which reads files
    VisionDataset.__init__(data, transform=ToTensor())
    data.data, data.targets = batches.images[:, 0], batches.labels.long()
    return data
