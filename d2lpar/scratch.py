"""Data-parallel training from scratch, on raw parameter tensors, and the single-device reference it is compared with.

`one_worker` is that reference, and `distance` says how far a result is from it. The names `get_params`, `allreduce`,
`split_batch`, `train_batch` and `train` come from Dive into Deep Learning. `train_batch` computes one shard after the
other; `train_batch_threads` computes all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import wraps
from math import inf

import torch
from torch import Tensor

from d2lpar.checks import check_buffers, check_counts, check_lr, overlaps
from d2lpar.data import load_data_fashion_mnist
from d2lpar.devices import run_on_devices, try_devices
from d2lpar.interrupts import uninterrupted
from d2lpar.models import check_images, lenet, lenet_params, loss
from d2lpar.timing import History


def check_counterparts(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    """Raise ValueError unless there are tensors, none is complex, and each has a counterpart of the same shape."""
    shapes = [[tuple(x.shape) for x in tensors] for tensors in (ours, theirs)]
    if not shapes[1] or shapes[0] != shapes[1]:
        raise ValueError(f"each tensor needs a counterpart of the same shape, got {shapes[0]} and {shapes[1]}")
    if any(x.is_complex() for tensors in (ours, theirs) for x in tensors):
        raise ValueError("complex tensors cannot be compared: their imaginary parts would be lost")


def check_comparable(replicas: Sequence[Sequence[Tensor]]) -> None:
    """Raise ValueError unless every replica has tensors of the same shapes as the first."""
    for other in replicas:
        check_counterparts(other, replicas[0])


def one_worker(X, y, params, lr):
    """LeNet's parameters after one plain SGD step on (X, y), on a single device.
    They are new tensors without a history; `params` stay as they are.

    Raises:
        ValueError: if an image is not finite, or the learning rate is not valid.
    """
    check_images(X, y)  # package only
    check_lr(lr)  # package only
    gradients = torch.autograd.grad(loss(lenet(X, params), y).sum(), params)
    return [p.detach() - lr * g / len(X) for p, g in zip(params, gradients)]


def distance(ours, theirs):
    """The largest relative distance ‖a - b‖ / ‖b‖ between a tensor and its counterpart.
    NaN is infinitely far from everything.

    Equal tensors are at distance 0, even if all their values are zero.

    Raises:
        ValueError: if a tensor is missing or has a different shape.
    """
    ours = list(ours)  # package only
    theirs = list(theirs)  # package only
    check_counterparts(ours, theirs)  # package only
    def relative(a, b):
        far = ((a - b).norm() / b.norm()).item()
        return 0.0 if torch.equal(a, b) else far if far < inf else inf

    return max(relative(a.detach().cpu().double(), b.detach().cpu().double())
               for a, b in zip(ours, theirs, strict=True))


def same_bits(replicas):
    """Whether every tensor of every replica has the same bits as in replica 0.
    NaN never counts as the same.

    Raises:
        ValueError: if a replica lacks a tensor.
    """
    replicas = [list(tensors) for tensors in replicas]  # package only
    check_comparable(replicas)  # package only
    first, *others = replicas
    return all(equal_bits(p, q) for other in others
               for p, q in zip(other, first, strict=True))


def equal_bits(p: Tensor, q: Tensor) -> bool:
    """Whether two tensors of the same shape have the same dtype and the same bits, and no NaN."""
    p, q = (x.detach().cpu().contiguous().reshape(-1) for x in (p, q))
    return p.dtype == q.dtype and torch.equal(p, q) and torch.equal(p.view(torch.uint8), q.view(torch.uint8))


def check_batch(X: Tensor, y: Tensor) -> None:
    """Raise ValueError unless X and y have one entry per example."""
    if len(X) != len(y):
        raise ValueError(f"X and y need one row per example, got {len(X)} and {len(y)}")


def check_step(X: Tensor, y: Tensor, replicas: Sequence[Sequence[Tensor]], devices: Sequence[torch.device],
               lr: float) -> None:
    """Raise ValueError unless there are examples, a valid learning rate, and a separate replica for each device."""
    check_lr(lr)
    check_batch(X, y)
    if len(X) == 0:
        raise ValueError("there are no examples")
    if len(replicas) != len(devices):
        raise ValueError(f"each device needs one replica, got {len(replicas)} replicas for {len(devices)} devices")
    owners = [(rank, i) for rank, params in enumerate(replicas) for i in range(len(params))]
    for first, second in overlaps([p for params in replicas for p in params]):
        (a, i), (b, j) = owners[first], owners[second]
        raise ValueError(f"parameter {i} of replica {a} and parameter {j} of replica {b} share memory: "
                         "make separate replicas with get_params")
    check_images(X, y)


def check_update(lr: float, batch_size: int) -> None:
    """Raise ValueError unless the learning rate and the number of examples are valid."""
    check_lr(lr)
    check_counts(batch_size=batch_size)


@contextmanager
def fresh_gradients(replicas: Sequence[Sequence[Tensor]]) -> Generator[None]:
    """Within this block gradients start from None; if the block fails, they are set to None again."""
    def clear() -> None:
        for params in replicas:
            for p in params:
                p.grad = None

    clear()
    try:
        yield
    except BaseException:
        clear()
        raise


def whole_step(step: Callable) -> Callable:
    """The same step with its arguments checked: an interrupt waits until it ends, and a failure leaves no gradients."""
    @wraps(step)
    def checked_step(X: Tensor, y: Tensor, replicas: Sequence[Sequence[Tensor]], devices: Sequence[torch.device],
                     lr: float) -> None:
        check_step(X, y, replicas, devices, lr)
        with uninterrupted(), fresh_gradients(replicas):
            step(X, y, replicas, devices, lr)

    return checked_step


def get_params(params, device):
    """A replica: copies of `params` on `device`, always in memory of their own.
    Each of them requires grad, and has no history.

    `params` have a floating or complex dtype, as `net.parameters()` do.
    """
    return [p.detach().to(device, copy=True).requires_grad_() for p in params]


@uninterrupted()  # package only
def allreduce(data):
    """Replace each tensor of `data`, one per device, with the sum of all, in place.

    Adds in rank order.

    Raises:
        ValueError: if shapes or dtypes differ or buffers overlap in memory; nothing has been changed then.
    """
    check_buffers(data)  # package only
    total = data[0]
    for other in data[1:]:
        total.add_(other.to(total.device))
    for other in data[1:]:
        other.copy_(total)


def split_batch(X, y, devices):
    """Cut X (B, ...) and y (B, ...) into one shard per device, in rank order.
    Sizes differ by at most one, with the larger shards first.

    A shard that is already on its device is a view.

    Raises:
        ValueError: if X and y differ in length.
    """
    check_batch(X, y)  # package only
    k = len(devices)
    return ([A.to(device) for A, device in zip(X.tensor_split(k), devices)],
            [b.to(device) for b, device in zip(y.tensor_split(k), devices)])


@uninterrupted()  # package only
@torch.no_grad()
def sgd(params, lr, batch_size):
    """One step of minibatch SGD, in place, with gradients summed over the minibatch.
    Zeroes the gradients afterwards."""
    check_update(lr, batch_size)  # package only
    for p in params:
        p -= lr * p.grad / batch_size
        p.grad.zero_()


@whole_step  # package only
def train_batch(X, y, replicas, devices, lr):
    """One step of SGD for LeNet on the minibatch (X, y), in place on every replica.

    `replicas[r]` holds the eight tensors of rank r's LeNet, on `devices[r]`. Earlier gradients are discarded. If a
    shard fails, no parameter changes, and no gradient is left.

    Raises:
        ValueError: if there are no examples, the learning rate or an image is not finite, replicas share memory, or
            there is not one replica per device.
    """
    X_shards, y_shards = split_batch(X, y, devices)         # 2. cut
    for A, b, params in zip(X_shards, y_shards, replicas):
        loss(lenet(A, params), b).sum().backward()          # 3. compute
    for copies in zip(*replicas):  # of W1, then of b1, and so on
        allreduce([p.grad for p in copies])                 # 4. add up
    for params in replicas:
        sgd(params, lr, batch_size=len(X))                  # 5. step


def shard_backward(X, y, params):
    """Sum the loss over one shard, and add its gradients to `.grad`."""
    loss(lenet(X, params), y).sum().backward()


@whole_step  # package only
def train_batch_threads(X, y, replicas, devices, lr):
    """The step of `train_batch`, with all shards at once, each in its own thread.

    The arguments, guarantees and errors are the same.
    """
    X_shards, y_shards = split_batch(X, y, devices)         # 2. cut
    run_on_devices(shard_backward, X_shards, y_shards, replicas)  # 3. compute
    for copies in zip(*replicas):  # of W1, then of b1, and so on
        allreduce([p.grad for p in copies])                 # 4. add up
    for params in replicas:
        sgd(params, lr, batch_size=len(X))                  # 5. step


@torch.no_grad()
def evaluate_accuracy(params: Sequence[Tensor], data_iter: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The share of examples, from 0 to 1, that LeNet with these eight tensors classifies correctly.

    Raises:
        ValueError: if an image is not finite, or there is not one label per image.
    """
    right, count = 0, 0
    for X, y in data_iter:
        check_images(X, y)
        predicted = lenet(X.to(params[0].device), params).argmax(1)
        right += (predicted == y.to(predicted.device)).sum().item()
        count += len(y)
    return right / count


def train(
    num_devices, batch_size, lr, num_epochs=10, params=None, seed=0, num_train=None,
    step=None
):
    """Train LeNet on Fashion-MNIST, starting from `params` or from `lenet_params()`.
    Prints a line per epoch; returns the replicas and the history.

    `seed` sets the order of the `num_train` images; `step` is `train_batch`, or a function that takes the same
    arguments. The history is a `History` with `accuracies` and `epoch_s`.
    """
    check_lr(lr)  # package only
    devices = try_devices(num_devices)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_train, seed=seed)
    start = lenet_params() if params is None else params
    replicas = [get_params(start, device) for device in devices]           # 1. copy
    with History(num_epochs, len(train_iter), devices) as history:
        for _ in range(num_epochs):
            for X, y in history.clocked(train_iter):
                (step or train_batch)(X, y, replicas, devices, lr)         # 2. to 5.
            history.add(evaluate_accuracy(replicas[0], test_iter))
    return replicas, history
