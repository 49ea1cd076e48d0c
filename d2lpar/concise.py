"""Data-parallel training of any network, concisely.

Names and meanings follow Dive into Deep Learning. Only its `train` is called `train_data_parallel`, because `scratch`
has a `train` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from d2lpar.checks import check_labels, check_lr
from d2lpar.data import load_data_fashion_mnist
from d2lpar.data_parallel import DataParallel, replicate
from d2lpar.devices import run_on_devices, try_devices
from d2lpar.models import initialize
from d2lpar.scratch import split_batch
from d2lpar.timing import History


def unwrap(net: nn.Module, devices: Sequence[torch.device] | None) -> tuple[nn.Module, Sequence[torch.device]]:
    """The module inside a DataParallel, ours or PyTorch's, and the devices to use."""
    module = net.module if isinstance(net, DataParallel | nn.DataParallel) else net
    if devices is None:
        devices = [torch.device("cuda", d) if isinstance(d, int) else d for d in getattr(net, "device_ids", None) or []]
    return module, devices or [next(module.parameters()).device]


def labelled(data_iter: Iterable[tuple[Tensor, Tensor]],
             split_f: Callable = split_batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches of `data_iter`; with `split_batch`, raise ValueError unless each example has one label."""
    for X, y in data_iter:
        if split_f is split_batch:  # a split_f of the caller's may accept other labels
            check_labels(X, y)
        yield X, y


def check_examples(X: Any, y: Any) -> None:
    """Raise ValueError if X, where it is a tensor, is not finite or has not as many examples as y has labels."""
    if isinstance(X, Tensor):
        if len(X) != len(y):
            raise ValueError(f"X needs one row and y one label per example, got shapes {tuple(X.shape)} and "
                             f"{tuple(y.shape)}")
        if not X.isfinite().all():  # NaN would be some class, and could be the right one
            raise ValueError("examples must be finite numbers, but X holds NaN or infinity")


def count_right(net, X, y):
    """Count the examples X (B, ...) for which `net` predicts the right class y (B,).

    Raises:
        ValueError: if X is not finite, or does not have as many examples as y has labels.
    """
    check_examples(X, y)  # package only
    return (net(X).argmax(1) == y).sum().item() if len(X) else 0


@torch.no_grad()
def evaluate_accuracy_gpus(net, data_iter, split_f=split_batch, devices=None):
    """The share of examples that `net` classifies correctly, computed on all devices.
    By default these are the devices of a DataParallel, or else the net's own device.

    `split_f(X, y, devices)` cuts a minibatch, as `split_batch` does. Every layer stays in the mode it was in.

    Raises:
        ValueError: if an example is not finite, or there is not exactly one label for each.
    """
    data_iter = labelled(data_iter, split_f)  # package only
    module, devices = unwrap(net, devices)
    replicas = [replicate(module, device).eval() for device in devices]
    right, count = 0, 0
    for X, y in data_iter:
        right += sum(run_on_devices(count_right, replicas, *split_f(X, y, devices)))
        count += len(y)
    return right / count


def train_data_parallel(
    net, num_devices, batch_size, lr, num_epochs=10, seed=0, init=None
):
    """Train `net` on Fashion-MNIST, from a fresh start, on `num_devices` devices.
    Prints a line per epoch and returns the history.

    `seed` determines the start and the order of the batches; `init` is called for each layer.
    """
    check_lr(lr)  # package only
    devices = try_devices(num_devices)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, seed=seed)
    with History(num_epochs, len(train_iter), devices) as history:
        initialize(net, seed, init)
        parallel = DataParallel(net.to(devices[0]), devices)  # 1. wrap
        trainer = torch.optim.SGD(parallel.parameters(), lr)
        loss = nn.CrossEntropyLoss()
        for _ in range(num_epochs):
            parallel.train()
            for X, y in history.clocked(train_iter):
                trainer.zero_grad()
                X, y = X.to(devices[0]), y.to(devices[0])  # 2. to the first device
                loss(parallel(X), y).backward()  # 3. forward and backward
                trainer.step()
            history.add(evaluate_accuracy_gpus(parallel, test_iter))
    return history
