"""The case study at full size: 60,000 images, batches of 512, and 96 images in the last minibatch of each epoch.

    D2LPAR_FULL=1 python book/lab/full_size.py FILE

trains for about six hours on two cores. If stopped, the same command goes on from the last record or checkpoint; the
checkpoints lie in the folder FILE.checkpoints, and a missing one is computed again, bit for bit on the same machine.
Every record is one line of FILE. There are four parts:

- `network`: the published network (ResNet-18, 64 channels, learning rate 0.2, two shards) for three epochs, with the
  last step dropped.
- `branch`: at the end of each of these epochs, 40 draws of images, and four kinds of step on each draw.
- `training`: a quarter of the channels, ten epochs, with the last step full, damped and dropped, for three seeds.
- `lenet`: LeNet as published, for ten epochs on one device and on two, for three seeds.

`PREDICTIONS` were written down before the first run of the first three parts. If there is time, two more seeds of
`training` follow, whatever the first three have shown.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import lru_cache, partial
from io import StringIO
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from branches import drawn
from d2lpar import initialize, lenet_params, resnet18, run_on_devices, split_batch, train, train_batch_threads
from d2lpar.checkpoints import digest_of
from d2lpar.data import Batches, DataError, load_data_fashion_mnist, provenance
from d2lpar.models import init_weights
from d2lpar.timing import describe_machine
from records import RecordError, run_missing
from study import rounded, sharing_parameters

BATCH_SIZE, LR, FEW, SHARDS = 512, 0.2, 96, 2
TRAIN, TEST, BRANCH_TEST = 60_000, 10_000, 2048
NETWORK = {"part": "network", "width": 64, "last": "dropped"}
DRAWS, NETWORK_EPOCHS, EPOCHS, SEEDS = 40, 3, 10, 3
LENET_BATCH_SIZE, LENET_SCALE = 256, 0.01

PREDICTIONS = {
    "length": "The gradient of 96 images is 1.2 to 1.7 times as long as that of 512 (1.44 by the law of lengths, with "
              "the small network's noise scale of 170 images).",
    "full": "A full step on 96 images costs half a point to 4 points of accuracy, on average over the draws at the end "
            "of the second and of the third epoch (the small network loses 2.5 points at 1.6 times the usual length).",
    "damped": "A damped step costs less than half a point.",
    "length, not noise": "At the usual length, the 96 images cost less than half as much as at full length; and 512 "
                         "images at the length of the 96 cost more than half as much as the 96.",
    "training": "In the runs with a quarter of the channels, full steps lower the mean accuracy over epochs 4 to "
                "10 by less than 4.5 points, half of the nine points, compared with dropped ones.",
    "damped training": "Damped steps change it by less than one point.",
}


@lru_cache(1)
def images() -> tuple[Batches, Batches]:
    """All training and test images."""
    with redirect_stdout(StringIO()):
        return load_data_fashion_mnist(BATCH_SIZE, TRAIN, TEST)


def shard_gradient(replica: nn.Module, X: Tensor, y: Tensor, count: int) -> list[Tensor]:
    """The gradient of the summed loss of one shard, divided by `count`."""
    loss = F.cross_entropy(replica.train()(X), y, reduction="sum") / count
    return list(torch.autograd.grad(loss, list(replica.parameters())))


def gradient(replicas: Sequence[nn.Module], X: Tensor, y: Tensor) -> tuple[list[Tensor], float]:
    """The gradient of the mean loss, each replica at work on its shard in a thread of its own, and its norm.

    The replicas share their parameters and have running statistics of their own, which move.
    """
    shards = split_batch(X, y, [X.device] * len(replicas))
    parts = run_on_devices(shard_gradient, replicas, *shards, count=len(y))
    total = [sum(of_one[1:], start=of_one[0]) for of_one in zip(*parts)]
    return total, torch.cat([g.flatten() for g in total]).norm().item()


@torch.no_grad()
def move(net: nn.Module, gradient: Sequence[Tensor], lr: float) -> None:
    """One step of plain SGD."""
    for p, g in zip(net.parameters(), gradient):
        p -= lr * g


@torch.no_grad()
def right_in(net: nn.Module, images: Tensor, labels: Tensor) -> int:
    """How many of the images `net`, in evaluation mode, puts into their class."""
    return sum((net(X).argmax(1) == y).sum().item() for X, y in Batches(images, labels, 256))


def accuracy(net: nn.Module, num_test: int = TEST) -> float:
    """The share of the first `num_test` test images that are put into their class; the shards are counted at once."""
    net.eval()
    test = images()[1]
    columns = [x[:num_test].tensor_split(SHARDS) for x in (test.images, test.labels)]
    return sum(run_on_devices(partial(right_in, net), *columns)) / num_test


def fresh(width: int, seed: int) -> list[nn.Module]:
    """The untrained network on two shards: its weights from N(0, 0.01^2), as published."""
    net = resnet18(10, width=width)
    initialize(net, seed, init_weights)
    return sharing_parameters(net.to(memory_format=torch.channels_last), SHARDS)  # faster on a CPU


def trained(folder: Path, epoch: int, width: int, last: str, seed: int) -> dict[str, Any]:
    """The replicas after so many epochs, and what was measured in the last; from a checkpoint if there is one."""
    if epoch == 0:
        return {"replicas": fresh(width, seed)}
    path = folder / f"{width}_{last}_{seed}_{epoch}.pt"
    if path.exists():
        found = torch.load(path, weights_only=True)
        replicas = fresh(width, seed)
        for replica, state in zip(replicas, found.pop("states"), strict=True):
            replica.load_state_dict(state)
        return {"replicas": replicas, **found}
    replicas = trained(folder, epoch - 1, width, last, seed)["replicas"]
    found = train_epoch(replicas, epoch, last, seed)
    folder.mkdir(exist_ok=True)
    states = [replica.state_dict() for replica in replicas]
    torch.save({"states": states, **found}, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)
    return {"replicas": replicas, **found}


def train_epoch(replicas: Sequence[nn.Module], epoch: int, last: str, seed: int) -> dict[str, Any]:
    """Train for one epoch, whose order of images depends on `seed` and `epoch` alone.

    Returns:
        The test accuracy `before_last`, the last step, and after it (`accuracy`), with the running statistics of
        replica 0; the median norm of the gradients of whole batches (`usual`) and the norm for the last minibatch
        (`few`), None if that is dropped; a digest of both replicas, and the seconds.
    """
    start = time.perf_counter()
    net, norms, found = replicas[0], [], {"few": None}
    everything = images()[0]
    for X, y in Batches(everything.images, everything.labels, BATCH_SIZE, shuffle_seed=100 * seed + epoch):
        if is_part := len(y) < BATCH_SIZE:
            found["before_last"] = accuracy(net)
            if last == "dropped":
                break
        grads, norm = gradient(replicas, X, y)
        if is_part:
            found["few"] = rounded(norm)
        else:
            norms.append(norm)
        move(net, grads, LR * (len(y) / BATCH_SIZE if last == "damped" else 1))
    found["accuracy"] = found["before_last"] if last == "dropped" else accuracy(net)
    return found | {"usual": rounded(median(norms)), "digest": digest_of([r.state_dict() for r in replicas]),
                    "seconds": round(time.perf_counter() - start)}


@lru_cache(1)
def trunk(folder: Path, epoch: int) -> tuple[list[nn.Module], float, float]:
    """The published network after so many epochs, its usual norm, and its accuracy on the images for branches."""
    found = trained(folder, epoch, NETWORK["width"], NETWORK["last"], 0)
    return found["replicas"], found["usual"], accuracy(found["replicas"][0], BRANCH_TEST)


def branch(folder: Path, epoch: int, draw: int) -> dict[str, Any]:
    """The accuracy `before` and after one step of each kind, from the network after so many epochs.

    Returns:
        The accuracies on 2,048 test images: `few`, a full step on 96 images; `damped`, by 96/512 of it; `few_usual`,
        in the same direction with the length of a usual step; `batch_long`, on 512 images with the length of `few`.
        And the norms of the gradients: `usual`, of 96 images (`norm_few`) and of 512 (`norm_batch`).
    """
    replicas, usual, before = trunk(folder, epoch)
    chosen = torch.Generator().manual_seed(1000 * epoch + draw)

    def seen(n: int) -> tuple[nn.Module, list[Tensor], float]:
        """The network when its running statistics have seen `n` images, the gradient of these, and its norm."""
        moved = copy.deepcopy(replicas)
        return moved[0], *gradient(moved, *drawn(images()[0], n, chosen, moved[0]))

    def after(net: nn.Module, grads: list[Tensor], lr: float) -> float:
        net = copy.deepcopy(net)
        move(net, grads, lr)
        return accuracy(net, BRANCH_TEST)

    few, grads, norm_few = seen(FEW)
    found = {"before": before, "few": after(few, grads, LR), "damped": after(few, grads, LR * FEW / BATCH_SIZE),
             "few_usual": after(few, grads, LR * usual / norm_few)}
    batch, grads, norm_batch = seen(BATCH_SIZE)
    return found | {"batch_long": after(batch, grads, LR * norm_few / norm_batch),
                    "usual": usual, "norm_few": rounded(norm_few), "norm_batch": rounded(norm_batch)}


def lenet(seed: int, num_devices: int) -> dict[str, Any]:
    """The test accuracy after each epoch and the seconds that its training took; each device has a core of its own."""
    with redirect_stdout(StringIO()):
        replicas, history = train(num_devices, LENET_BATCH_SIZE, LR, EPOCHS, lenet_params(LENET_SCALE, seed), seed,
                                  TRAIN, train_batch_threads)
    return {"accuracies": [round(a, 4) for a in history.accuracies],
            "epoch_s": [round(s, 2) for s in history.epoch_s], "digest": digest_of(replicas)}


def one(folder: Path, part: str, seed: int, epoch: int = 0, width: int = 0, last: str = "",
        num_devices: int = 0) -> dict[str, Any]:
    """What a line of the file holds; the `seed` of a branch is the number of its draw."""
    if part == "lenet":
        return lenet(seed, num_devices)
    if part == "branch":
        return branch(folder, epoch, seed)
    found = trained(folder, epoch, width, last, seed)
    return {name: value for name, value in found.items() if name != "replicas"}


def all_runs(num_seeds: int) -> list[dict[str, Any]]:
    """The arguments of `one`, in the order of the work: the third epoch of `network` follows the ten-epoch runs."""
    def network(epoch: int) -> list[dict[str, Any]]:
        return [{**NETWORK, "seed": 0, "epoch": epoch},
                *({"part": "branch", "seed": draw, "epoch": epoch} for draw in range(DRAWS))]

    def training(seed: int) -> list[dict[str, Any]]:
        return [{"part": "training", "width": 16, "last": last, "seed": seed, "epoch": epoch}
                for last in ("full", "damped", "dropped") for epoch in range(1, EPOCHS + 1)]

    published = [{"part": "lenet", "seed": seed, "num_devices": k} for seed in range(SEEDS) for k in (1, 2)]
    *first, third = [network(epoch) for epoch in range(1, NETWORK_EPOCHS + 1)]
    seeds = [training(seed) for seed in range(num_seeds)]
    return list(chain(*first, *seeds[:SEEDS], third, published, *seeds[SEEDS:]))


def run_all(path: Path, num_seeds: int = SEEDS) -> None:
    """Do all runs that have no record in the file `path`; one process with a thread for each of the two shards."""
    about = {"command": "D2LPAR_FULL=1 python book/lab/full_size.py", "machine": describe_machine(),
             "data": provenance(TRAIN, TEST)}
    run_missing(path, about, all_runs(num_seeds), partial(one, path.with_name(path.name + ".checkpoints")), 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the case study at full size (six hours on two cores)")
    parser.add_argument("file", type=Path, help="where the results go; stopped, the same command goes on from there")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of the runs of ten epochs ({SEEDS})")
    args = parser.parse_args()
    try:
        run_all(args.file, args.seeds)
    except (DataError, RecordError, ValueError) as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit(f"\nStopped. What had ended is in {args.file}; the same command goes on from there.")
