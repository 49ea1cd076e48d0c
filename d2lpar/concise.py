"""Data-parallel training of any network, concisely (chapter 4).

The names and the meaning are those of Dive into Deep Learning; `train_net` is its `train`, under a name that chapter 2
has not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from d2lpar.checks import check_devices, check_labels, check_lr, check_module
from d2lpar.data import load_data_fashion_mnist
from d2lpar.data_parallel import DataParallel
from d2lpar.devices import run_on_devices, try_devices
from d2lpar.history import History
from d2lpar.interrupts import uninterrupted
from d2lpar.models import initialize
from d2lpar.replicas import replicate
from d2lpar.scratch import check_examples, split_batch


@torch.no_grad()
def evaluate_accuracy_gpus(
    net: nn.Module, data_iter: Iterable[tuple[Tensor, Tensor]],
    split_f: Callable = split_batch, devices: Sequence[torch.device] | None = None
) -> float:
    """The share of examples that `net` puts into the right class, on all devices.

    `devices` are those of a DataParallel by default, otherwise the net's own.
    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    module, devices = unwrap(net, devices)
    replicas = [module, *[replicate(module, device) for device in devices[1:]]]
    was_training, right, count = [(m, m.training) for m in module.modules()], 0, 0
    try:
        for replica in replicas:
            replica.eval()
        for X, y in data_iter:
            if split_f is split_batch:
                check_labels(X, y)
            right += sum(run_on_devices(count_right, replicas, *split_f(X, y, devices)))
            count += len(y)
    finally:
        for m, training in was_training:
            m.training = training
    check_examples(count)
    return right / count


def count_right(net: nn.Module, X: Tensor, y: Tensor) -> int:
    """How many of the examples X (B, ...) `net` puts into their class y (B,).

    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    return (net(X).argmax(1) == y).sum().item() if len(X) else 0


def train_net(
    net: nn.Module, num_devices: int, batch_size: int, lr: float,
    num_epochs: int = 10, seed: int = 0,
    init: Callable[[nn.Module], None] | None = None, curve: bool = True
) -> History:
    """Train `net` on Fashion-MNIST, from a fresh start, on `num_devices` devices.

    `seed` is that of the start and of the order of the batches; `init` is called for
    each layer. Shows a line per epoch, and with `curve` the test accuracy as it grows.
    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    check_lr(lr)
    devices = try_devices(num_devices)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, seed=seed)
    with History(num_epochs, len(train_iter), devices, curve) as history:
        initialize(net, seed, init)
        parallel = DataParallel(net.to(devices[0]), devices)
        trainer = torch.optim.SGD(parallel.parameters(), lr)
        loss = nn.CrossEntropyLoss()
        for _ in range(num_epochs):
            parallel.train()
            for X, y in history.clocked(train_iter):
                trainer.zero_grad()
                X, y = X.to(devices[0]), y.to(devices[0])
                loss(parallel(X), y).backward()
                with uninterrupted():
                    trainer.step()
            history.add(evaluate_accuracy_gpus(parallel, test_iter))
    return history


def unwrap(net: nn.Module, devices: Sequence[torch.device] | None) -> tuple[nn.Module, Sequence[torch.device]]:
    """The module inside a DataParallel, ours or torch's, and the devices to use."""
    check_module(net)
    if devices is not None:
        check_devices(devices)
    module = net.module if isinstance(net, DataParallel | nn.DataParallel) else net
    if devices is None:
        devices = [torch.device("cuda", d) if isinstance(d, int) else d for d in getattr(net, "device_ids", [])]
    if not devices and next(module.parameters(), None) is None:
        raise ValueError("the network has no parameters that would say where to evaluate it: name the devices")
    return module, devices or [next(module.parameters()).device]
