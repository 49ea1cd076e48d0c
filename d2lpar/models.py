"""The models of the book, their loss, and their initial parameters.

LeNet (LeCun, Bottou, Bengio and Haffner, 1998, with average pooling and rectifiers as in Dive into Deep Learning) is a
function of eight raw tensors, so that nothing about its parameters is hidden. ResNet-18 is a module.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2lpar.checks import check_labels


def check_images(X: Tensor, y: Tensor) -> None:
    """Raise ValueError unless the images are finite and each has one label, none of which the loss would ignore."""
    check_labels(X, y)
    if X.numel() and not torch.stack(X.aminmax()).isfinite().all():  # with a NaN, both are NaN; one pass
        raise ValueError("images must be finite numbers, but X holds NaN or infinity")
    if len(y) and not y.min() >= 0:  # the loss ignores -100 and refuses 10 itself; NaN must not pass either
        raise ValueError(f"classes count from 0, got {y.min().item()}")


def lenet_params(scale=None, seed=0):
    """Eight fresh tensors: normal weights and zero biases. The standard deviation is
    `scale`, by default sqrt(2 / inputs), which keeps the signal's size.

    The tensors are float32, on the CPU.

    Source: He et al., 2015, section 2.2, for the default, which keeps the signal's size from layer to layer.
    """
    generator = torch.Generator().manual_seed(seed)

    def weight(*shape, inputs):
        std = sqrt(2 / inputs) if scale is None else scale
        return torch.randn(shape, generator=generator) * std

    return [
        weight(20, 1, 3, 3, inputs=1 * 3 * 3), torch.zeros(20),
        weight(50, 20, 5, 5, inputs=20 * 5 * 5), torch.zeros(50),
        weight(800, 128, inputs=800), torch.zeros(128),
        weight(128, 10, inputs=128), torch.zeros(10),
    ]


def lenet(X, params):
    """Scores (B, 10) of images X (B, 1, 28, 28), given eight parameter tensors."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h1 = F.avg_pool2d(F.relu(F.conv2d(X, W1, b1)), 2, stride=2)  # (B, 20, 13, 13)
    h2 = F.avg_pool2d(F.relu(F.conv2d(h1, W2, b2)), 2, stride=2)  # (B, 50, 4, 4)
    h3 = F.relu(h2.flatten(1) @ W3 + b3)  # (B, 128)
    return h3 @ W4 + b4


loss = nn.CrossEntropyLoss(reduction="none")  # one number per example
"""`loss(scores, y)` is the cross-entropy of scores (B, 10) and classes (B,): a tensor of shape (B,)."""


class LeNet(nn.Module):
    """`lenet` as a module, with the parameters of `lenet_params(seed=seed)`."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.params = nn.ParameterList(lenet_params(seed=seed))

    def reset_parameters(self) -> None:
        """Draw new parameters with the global random generator, as PyTorch's layers do."""
        for p, start in zip(self.params, lenet_params(seed=int(torch.randint(2**62, ())))):
            p.data.copy_(start)

    def forward(self, X: Tensor) -> Tensor:
        return lenet(X, list(self.params))


class Residual(nn.Module):
    """Two convolutions and a skip connection: (B, in_channels, H, W) to (B, channels, H / strides, W / strides).

    Source: He et al., 2016, section 3.
    """

    def __init__(self, in_channels: int, channels: int, strides: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, kernel_size=3, padding=1, stride=strides)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        self.conv3 = nn.Conv2d(in_channels, channels, kernel_size=1, stride=strides) if strides > 1 else None
        self.bn1 = nn.BatchNorm2d(channels)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, X: Tensor) -> Tensor:
        Y = F.relu(self.bn1(self.conv1(X)))
        Y = self.bn2(self.conv2(Y))
        return F.relu(Y + (X if self.conv3 is None else self.conv3(X)))


def resnet18(num_classes, in_channels=1, width=64):
    """ResNet-18 for small images: scores (B, num_classes) of X (B, in_channels, H, W).
    The first stage has `width` channels, each later one twice as many.

    Source: He et al., 2016, with the first layer of Dive into Deep Learning.
    """
    net = nn.Sequential(
        nn.Conv2d(in_channels, width, kernel_size=3, stride=1, padding=1),
        nn.BatchNorm2d(width), nn.ReLU(),
    )
    channels = width
    for stage in range(4):
        first, channels = channels, width * 2**stage
        net.add_module(f"resnet_block{stage + 1}", nn.Sequential(
            Residual(first, channels, strides=1 if stage == 0 else 2),
            Residual(channels, channels),
        ))
    net.add_module("global_avg_pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(channels, num_classes)))
    return net


def init_weights(module):
    """Draw the weights of a linear or convolutional layer from N(0, 0.01^2).

    For `net.apply`; biases and all other layers stay as they are.
    """
    if type(module) in (nn.Linear, nn.Conv2d):
        nn.init.normal_(module.weight, std=0.01)


def check_resettable(net: nn.Module, seed: int = 0, init: Any = None) -> None:
    """Raise ValueError if no module's `reset_parameters` draws some parameter, which would keep its trained values."""
    drawn = {p for m in net.modules() if hasattr(m, "reset_parameters") for p in m.parameters()}
    if kept := [name for name, p in net.named_parameters() if p not in drawn]:
        raise ValueError(f"{kept[0]} would not start afresh: give its module a method reset_parameters that draws it")


def initialize(net, seed=0, init=None):
    """Start `net` afresh: reset every layer, then call `net.apply(init)`.
    The same seed gives the same bits on every device.

    The values are drawn on the CPU. The global random generator is left alone.
    """
    check_resettable(net, seed, init)  # package only
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        net.cpu()
        for module in net.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # BatchNorm: running statistics, too
        if init is not None:
            net.apply(init)
        net.to(device)
