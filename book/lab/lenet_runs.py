"""Do the LeNet training runs that take too long for a page: `python book/lab/lenet_runs.py`.

Each is repeated with several seeds, with one process per core, and the results are stored in
`d2lpar/pages/stored/lenet_runs.json`, with the machine, the images and the command. All of them together take about
twenty minutes on two cores.

- `devices`: 1 to 8 devices, the same initial weights, and a different batch order for each seed.
- `variant`: the same on 2, 4 and 8 devices with `broken.allreduce_rank_0`, and how far apart the replicas are.
- `batches`: batch sizes, learning rates and epochs, different initial weights and order for each seed.
- `start`: the initialization of Dive into Deep Learning, weights with standard deviation 0.01, for many epochs.
- `rounding`: how far training on two shards drifts from training on the whole batch, for several activations.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from d2lpar import evaluate_accuracy, get_params, load_data_fashion_mnist, split_batch, train_batch_threads, try_devices
from d2lpar.devices import all_cores
from d2lpar.models import lenet_params, loss
from d2lpar.pages.broken import allreduce_rank_0
from d2lpar.scratch import distance, sgd, shard_backward
from d2lpar.timing import describe_machine

COMMAND = "python book/lab/lenet_runs.py"
STORED = Path(__file__).resolve().parents[2] / "d2lpar" / "pages" / "stored" / "lenet_runs.json"
NUM_TRAIN, NUM_TEST, EPOCHS = 3500, 2048, 10
SEEDS = range(5)
BATCHES = ((64, 0.05, 10), (256, 0.2, 10), (512, 0.2, 10), (512, 0.4, 10), (1024, 0.2, 10), (1024, 0.8, 10),
           (512, 0.2, 20), (1024, 0.2, 40))  # batch size, learning rate, epochs
ACTIVATIONS: dict[str, Callable] = {"ReLU": F.relu, "GELU": F.gelu, "tanh": torch.tanh, "softplus": F.softplus}


def rounded(x: float) -> float:
    """Three digits: what a figure can show."""
    return float(f"{x:.3g}")


def trapped_batch(X: Tensor, y: Tensor, device_params: list, devices: list, lr: float) -> None:
    """As `train_batch`, but with the allreduce that leaves the sum on rank 0 alone."""
    for row in zip(*split_batch(X, y, devices), device_params):
        shard_backward(*row)
    for replicas in zip(*device_params):
        allreduce_rank_0([p.grad for p in replicas])
    for params in device_params:
        sgd(params, lr, len(X))


def training(k: int, batch_size: int, lr: float, start: int, order: int, epochs: int = EPOCHS,
             scale: float | None = None, step: Callable = train_batch_threads) -> dict:
    """Accuracy of rank 0 after each epoch, and how far the farthest replica is from it."""
    devices = try_devices(k)
    with redirect_stdout(StringIO()):
        train_iter, test_iter = load_data_fashion_mnist(batch_size, NUM_TRAIN, NUM_TEST, seed=order)
    replicas = [get_params(lenet_params(scale, start), device) for device in devices]
    accuracies, apart = [], []
    for _ in range(epochs):
        for X, y in train_iter:
            step(X, y, replicas, devices, lr)
        accuracies.append(round(evaluate_accuracy(replicas[0], test_iter), 4))
        apart.append(rounded(max(distance(replica, replicas[0]) for replica in replicas)))
    return {"updates_per_epoch": len(train_iter), "accuracies": accuracies, "apart": apart}


def drift(activation: str, lr: float, dtype: torch.dtype, seed: int, batch_size: int = 32) -> dict:
    """The distance, after each step of an epoch, of a step on two shards from one on the whole batch."""
    act = ACTIVATIONS[activation]

    def backward(X: Tensor, y: Tensor, params: list[Tensor]) -> None:
        W1, b1, W2, b2, W3, b3, W4, b4 = params
        h1 = F.avg_pool2d(act(F.conv2d(X, W1, b1)), 2)
        h2 = F.avg_pool2d(act(F.conv2d(h1, W2, b2)), 2)
        scores = act(h2.flatten(1) @ W3 + b3) @ W4 + b4
        loss(scores, y).sum().backward()

    with redirect_stdout(StringIO()):
        train_iter, _ = load_data_fashion_mnist(batch_size, NUM_TRAIN, NUM_TEST, seed=seed)
    whole, cut = ([p.to(dtype).requires_grad_() for p in lenet_params(seed=seed)] for _ in range(2))
    apart = []
    for X, y in train_iter:
        X = X.to(dtype)
        for A, c in zip(X.tensor_split(2), y.tensor_split(2)):
            backward(A, c, cut)
        backward(X, y, whole)
        for params in (cut, whole):
            sgd(params, lr, len(X))
        a, b = (torch.cat([p.detach().flatten() for p in params]) for params in (cut, whole))
        apart.append(rounded(((a - b).norm() / b.norm()).item()))
    return {"apart": apart}


def plan() -> list[tuple[str, dict, Callable, dict]]:
    """All runs: their group, what is said of each, the function and its arguments."""
    runs: list[tuple[str, dict, Callable, dict]] = []
    for seed in SEEDS:
        for k in (1, 2, 3, 4, 8):
            runs.append(("devices", {"k": k, "seed": seed}, training,
                         dict(k=k, batch_size=256, lr=0.2, start=0, order=seed)))
        for k in (2, 4, 8):
            runs.append(("variant", {"k": k, "seed": seed}, training,
                         dict(k=k, batch_size=256, lr=0.2, start=0, order=seed, step=trapped_batch)))
        for batch_size, lr, epochs in BATCHES:
            runs.append(("batches", {"batch_size": batch_size, "lr": lr, "epochs": epochs, "seed": seed}, training,
                         dict(k=1, batch_size=batch_size, lr=lr, start=seed, order=seed, epochs=epochs)))
        for activation in ACTIVATIONS:
            for lr in (0.2, 0.05):
                runs.append(("rounding", {"activation": activation, "lr": lr, "dtype": "float32", "seed": seed}, drift,
                             dict(activation=activation, lr=lr, dtype=torch.float32, seed=seed)))
        runs.append(("rounding", {"activation": "ReLU", "lr": 0.2, "dtype": "float64", "seed": seed}, drift,
                     dict(activation="ReLU", lr=0.2, dtype=torch.float64, seed=seed)))
    for seed in range(3):
        runs.append(("start", {"scale": 0.01, "seed": seed}, training,
                     dict(k=1, batch_size=256, lr=0.2, start=seed, order=seed, epochs=40, scale=0.01)))
    return runs


def main() -> None:
    """Run the plan and store what it gives."""
    runs = plan()
    found: dict[str, list[dict]] = {}
    with ProcessPoolExecutor(all_cores(), get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        waiting = [pool.submit(function, **arguments) for _, _, function, arguments in runs]
        for number, ((group, said, *_), end) in enumerate(zip(runs, waiting), 1):
            found.setdefault(group, []).append({**said, **end.result()})
            print(f"{number} of {len(runs)}: {group} {said}", file=sys.stderr)
    about = {"command": COMMAND, "machine": describe_machine(),
             "data": f"Fashion-MNIST, the first {NUM_TRAIN:,} training and {NUM_TEST:,} test images"}
    lines = [f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in found.items()]
    STORED.write_text("{\n" + ",\n".join([f'"about": {json.dumps(about)}', *lines]) + "\n}\n", "utf8")


if __name__ == "__main__":
    main()
