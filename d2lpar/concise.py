"""ResNet-18, and data-parallel training of any network, concisely (chapter 4).

The names and the meaning are those of Dive into Deep Learning; `train_net` is its `train`, under a name that chapter 2
has not taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from d2l import torch as d2l
from torch import Tensor, nn

from d2lpar import compat as compat
from d2lpar.data import load_data_fashion_mnist
from d2lpar.devices import describe_devices, run_on_devices, synchronize, try_devices
from d2lpar.parallel import DataParallel, replicate
from d2lpar.plot import TrainingPlot
from d2lpar.scratch import split_batch


def resnet18(num_classes: int, in_channels: int = 1, width: int = 64) -> nn.Sequential:
    """ResNet-18 for small images: scores (B, num_classes) of X (B, in_channels, H, W).

    The first stage has `width` channels, each later one twice as many.
    Source: He et al., 2016, with the first layer of Dive into Deep Learning.
    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    net = nn.Sequential(
        nn.Conv2d(in_channels, width, kernel_size=3, stride=1, padding=1),
        nn.BatchNorm2d(width), nn.ReLU(),
    )
    channels = width
    for stage in range(4):
        first, channels = channels, width * 2**stage
        halve = {} if stage == 0 else {"use_1x1conv": True, "strides": 2}
        net.add_module(f"resnet_block{stage + 1}", nn.Sequential(
            d2l.Residual(first, channels, **halve), d2l.Residual(channels, channels)
        ))
    net.add_module("global_avg_pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(channels, num_classes)))
    return net


def init_weights(module: nn.Module) -> None:
    """Draw the weights of a linear or convolutional layer from N(0, 0.01^2).

    For `net.apply`; biases and all other layers stay as they are.
    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    if type(module) in (nn.Linear, nn.Conv2d):
        nn.init.normal_(module.weight, std=0.01)


def initialize(net: nn.Module, seed: int = 0) -> None:
    """Start `net` afresh: every layer as when it was made, then `init_weights`.

    The same seed gives the same bits, and the global random generator is left alone.
    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        for module in net.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # of a BatchNorm also its running statistics
        net.apply(init_weights)


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
            right += sum(run_on_devices(count_right, replicas, *split_f(X, y, devices)))
            count += len(y)
    finally:
        for m, training in was_training:
            m.training = training
    return right / count


def count_right(net: nn.Module, X: Tensor, y: Tensor) -> int:
    """How many of the examples X (B, ...) `net` puts into their class y (B,).

    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    return (net(X).argmax(1) == y).sum().item() if len(X) else 0


class NetTraining(NamedTuple):
    """What `train_net` leaves: per epoch its seconds and the test accuracy."""

    epoch_s: list[float]
    accuracies: list[float]


def train_net(
    net: nn.Module, num_devices: int, batch_size: int, lr: float,
    num_epochs: int = 10, seed: int = 0
) -> NetTraining:
    """Train `net` on Fashion-MNIST, from a fresh start, on `num_devices` devices.

    Prints a line per epoch and draws the test accuracy; `seed` orders the batches.
    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    devices = try_devices(num_devices)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, seed=seed)
    initialize(net)
    parallel = DataParallel(net.to(devices[0]), devices)
    trainer = torch.optim.SGD(parallel.parameters(), lr)
    loss = nn.CrossEntropyLoss()
    epoch_s, accuracies = [], []
    with TrainingPlot(num_epochs, len(train_iter)) as plot:
        for epoch in range(num_epochs):
            start = time.perf_counter()
            parallel.train()
            for X, y in train_iter:
                trainer.zero_grad()
                X, y = X.to(devices[0]), y.to(devices[0])
                loss(parallel(X), y).backward()
                trainer.step()
                plot.batch_done()
            synchronize(devices)
            epoch_s.append(time.perf_counter() - start)
            accuracies.append(evaluate_accuracy_gpus(parallel, test_iter))
            plot.epoch_done(epoch_s[-1], accuracies[-1])
    print(f"test acc {accuracies[-1]:.2f}, {sum(epoch_s) / num_epochs:.1f} s/epoch",
          f"on {describe_devices(devices)}")
    return NetTraining(epoch_s, accuracies)


def unwrap(net: nn.Module, devices: Sequence[torch.device] | None) -> tuple[nn.Module, Sequence[torch.device]]:
    """The module inside a DataParallel, ours or torch's, and the devices to use."""
    module = net.module if isinstance(net, DataParallel | nn.DataParallel) else net
    if devices is None:
        devices = [torch.device("cuda", d) if isinstance(d, int) else d for d in getattr(net, "device_ids", [])]
    return module, devices or [next(module.parameters()).device]
