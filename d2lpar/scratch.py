"""Data-parallel training from scratch, on raw parameter tensors (chapter 2).

The names and the meaning are those of Dive into Deep Learning: `get_params`, `split_batch`, `train_batch`, `train`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
from d2l import torch as d2l
from torch import Tensor

from d2lpar import compat as compat
from d2lpar.buffers import overlaps
from d2lpar.checks import check_counts, check_device, check_devices, check_list, check_lr, check_tensors, shown
from d2lpar.collectives import allreduce
from d2lpar.data import load_data_fashion_mnist
from d2lpar.devices import rank_here, run_on_device_0, run_on_devices, try_devices
from d2lpar.history import History
from d2lpar.models import LENET_SHAPES, check_images, check_lenet, lenet, lenet_params, loss
from d2lpar.timing import Span, Stopwatch


def get_params(params: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """A replica: copies of `params` on `device`, always in memory of their own.

    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    check_params(params, device)
    return [p.detach().to(device, copy=True).requires_grad_() for p in params]


def split_batch(
    X: Tensor, y: Tensor, devices: Sequence[torch.device]
) -> tuple[list[Tensor], list[Tensor]]:
    """Cut X (B, ...) and y (B, ...) into one shard per device, in rank order.

    Sizes differ by at most one; a shard that is on its device already is a view.
    Raises ValueError if X and y differ in length or there are no devices.
    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    check_batch(X, y, devices)
    X_shards, y_shards = (batch.tensor_split(len(devices)) for batch in (X, y))
    return (
        [shard.to(device) for shard, device in zip(X_shards, devices)],
        [shard.to(device) for shard, device in zip(y_shards, devices)],
    )


def train_batch_loop(
    X: Tensor, y: Tensor, device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device], lr: float
) -> None:
    """One step of SGD for LeNet on the minibatch (X, y), in place on every replica.

    A plain loop over the devices.

    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    check_step(X, y, device_params, devices, lr)
    X_shards, y_shards = split_batch(X, y, devices)
    shard_losses = [
        loss(lenet(X_shard, params), y_shard).sum()
        for X_shard, y_shard, params in zip(X_shards, y_shards, device_params)
    ]
    for shard_loss in shard_losses:
        shard_loss.backward()
    for replicas in zip(*device_params):  # the k copies of one parameter
        allreduce([p.grad for p in replicas])
    for params in device_params:
        d2l.sgd(params, lr, X.shape[0])  # divides by the whole batch


def shard_gradients(
    X: Tensor, y: Tensor, params: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Gradients of the loss summed over one shard; leaves `.grad` alone.

    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    return torch.autograd.grad(loss(lenet(X, params), y).sum(), params)


def sum_gradients(device_grads: Sequence[Sequence[Tensor]]) -> None:
    """Allreduce the gradients of every parameter; `device_grads[r]` are rank r's.

    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    check_same_lengths(device_grads)
    for grads in zip(*device_grads):  # the k gradients of one parameter
        allreduce(grads)


def update(
    params: Sequence[Tensor], grads: Sequence[Tensor], lr: float, batch_size: int
) -> None:
    """One SGD update of one replica, in place, with gradients summed over the batch.

    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    check_update(params, grads, lr, batch_size)
    for p, grad in zip(params, grads):
        p.grad = grad
    d2l.sgd(params, lr, batch_size)


def train_batch(
    X: Tensor, y: Tensor, device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device], lr: float
) -> None:
    """One step of SGD for LeNet on the minibatch (X, y), in place on every replica.

    One thread per device. If a replica fails, no parameter and no gradient changes.
    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    check_step(X, y, device_params, devices, lr)
    X_shards, y_shards = split_batch(X, y, devices)
    device_grads = run_on_devices(shard_gradients, X_shards, y_shards, device_params)
    run_on_device_0(sum_gradients, device_grads)
    run_on_devices(update, device_params, device_grads, lr=lr, batch_size=X.shape[0])


@torch.no_grad()
def evaluate_accuracy(
    params: Sequence[Tensor], data_iter: Iterable[tuple[Tensor, Tensor]]
) -> float:
    """The share of examples, from 0 to 1, that LeNet puts into the right class.

    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    right, count = 0, 0
    for X, y in data_iter:
        check_images(X, y, params)
        predicted = lenet(X.to(params[0].device), params).argmax(1)
        right += (predicted == y.to(predicted.device)).sum().item()
        count += len(y)
    check_examples(count)
    return right / count


def train(
    num_devices: int, batch_size: int, lr: float, num_epochs: int = 10,
    params: Sequence[Tensor] | None = None, seed: int = 0, num_train: int | None = None
) -> tuple[list[list[Tensor]], History]:
    """Train LeNet on Fashion-MNIST, from `params` or from `lenet_params()`.

    Prints a line per epoch; `seed` orders the batches of `num_train` images.
    Returns the replicas, and the history with `accuracies` and `epoch_s`.
    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    check_lr(lr)
    devices = try_devices(num_devices)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_train, seed=seed)
    start_params = lenet_params() if params is None else params
    device_params = [get_params(start_params, device) for device in devices]
    with History(num_epochs, len(train_iter), devices, curve=False) as history:
        for _ in range(num_epochs):
            for X, y in history.clocked(train_iter):
                train_batch(X, y, device_params, devices, lr)
            history.add(evaluate_accuracy(device_params[0], test_iter))
    return device_params, history


def record_step(step: Callable, X: Tensor, y: Tensor, device_params: Sequence[Sequence[Tensor]],
                devices: Sequence[torch.device], lr: float) -> list[Span]:
    """What `train_batch` or `train_batch_loop` does when, on every rank: forward, backward, allreduce, update.

    The step itself runs, and a stopwatch stands around the functions that it calls meanwhile. A call in the thread of a
    device belongs to its rank; without such threads the ranks take turns.

    Raises:
        ValueError: if `step` is no function written in Python, and as `step` does.
    """
    if not isinstance(step, FunctionType):
        raise ValueError(f"a step is a function written in Python, got {shown(step)}")
    check_step(X, y, device_params, devices, lr)
    watch, caller, turns = Stopwatch(devices), threading.get_ident(), Counter[str]()

    def around(what: str, fn: Callable) -> Callable:
        def clocked(*args: Any, **kwargs: Any) -> Any:
            turns[what] += 1
            turn = (turns[what] - 1) % len(devices)
            here = rank_here()
            rank = turn if here is None or threading.get_ident() == caller else here
            with ExitStack() as stack:
                for r in range(len(devices)) if what == "allreduce" else [rank]:
                    stack.enter_context(watch(r, what, devices[r]))
                return fn(*args, **kwargs)
        return clocked

    names = step.__globals__
    calls = {"lenet": "forward", "allreduce": "allreduce"}
    places = ((torch.Tensor, "backward", "backward"), (torch.autograd, "grad", "backward"), (d2l, "sgd", "update"))
    with ExitStack() as stack:
        clocked_calls = {name: around(what, names[name]) for name, what in calls.items() if name in names}
        stack.enter_context(patch.dict(names, clocked_calls))
        for owner, name, what in places:
            stack.enter_context(patch.object(owner, name, around(what, getattr(owner, name))))
        step(X, y, device_params, devices, lr)
    return watch.spans


def check_batch(X: Tensor, y: Tensor, devices: Sequence[torch.device]) -> None:
    """Raise ValueError unless X and y have one entry per example and there is a device to send them to."""
    check_devices(devices)
    check_tensors("a batch", [X, y])
    if len(devices) == 0:
        raise ValueError("a batch cannot be split over no devices")
    if X.dim() == 0 or y.dim() == 0 or len(X) != len(y):
        raise ValueError(f"X and y need one row per example each, got shapes {tuple(X.shape)} and {tuple(y.shape)}")


def check_params(params: Sequence[Tensor], device: torch.device) -> None:
    """Raise ValueError unless `params` are tensors that can require grad, and `device` is one."""
    check_tensors("params", params)
    check_device(device)
    for i, p in enumerate(params):
        if not (p.is_floating_point() or p.is_complex()):
            raise ValueError(f"a parameter must be of a floating dtype, but entry {i} is {shown(p)}")


def check_step(X: Tensor, y: Tensor, device_params: Sequence[Sequence[Tensor]], devices: Sequence[torch.device],
               lr: float) -> None:
    """Raise ValueError unless there are examples, a learning rate, and a LeNet of its own on each device."""
    check_lr(lr)
    check_batch(X, y, devices)
    check_examples(len(X))
    check_list("device_params", device_params)
    if len(device_params) != len(devices):
        raise ValueError(f"each device needs one replica, got {len(device_params)} replicas for {len(devices)} devices")
    for rank, (params, device) in enumerate(zip(device_params, devices)):
        check_lenet(f"replica {rank}", params)
        if not all(p.requires_grad and p.dtype == X.dtype for p in params):
            raise ValueError(f"every parameter of replica {rank} must require grad and be {X.dtype}, as the images are")
        place = torch.empty(0, device=device).device  # "cuda" alone means the current one
        elsewhere = {str(p.device) for p in params if p.device != place}
        if elsewhere:
            raise ValueError(f"replica {rank} belongs on {place}, but has parameters on {', '.join(elsewhere)}")
    for places in overlaps([p for params in device_params for p in params]):
        (a, i), (b, j) = (divmod(place, len(LENET_SHAPES)) for place in places)
        raise ValueError(f"parameter {i} of replica {a} and parameter {j} of replica {b} share memory: "
                         "get_params makes replicas of their own")
    check_images(X, y, device_params[0])


def check_same_lengths(device_tensors: Sequence[Sequence[Tensor]]) -> None:
    """Raise ValueError unless every device has as many tensors as the others, of the same shapes and dtypes."""
    check_list("the devices' tensors", device_tensors)
    for rank, tensors in enumerate(device_tensors):
        check_tensors(f"what rank {rank} has", tensors)
    lengths = [len(tensors) for tensors in device_tensors]
    if len(set(lengths)) > 1:
        raise ValueError(f"every device needs as many tensors as the others, got {lengths}")
    for i, counterparts in enumerate(zip(*device_tensors)):
        if len({(x.shape, x.dtype) for x in counterparts}) > 1:
            raise ValueError(f"tensor {i} must have one shape and dtype on all devices, got "
                             f"{[(tuple(x.shape), x.dtype) for x in counterparts]}")


def check_update(params: Sequence[Tensor], grads: Sequence[Tensor], lr: float, batch_size: int) -> None:
    """Raise ValueError unless each parameter has a gradient, and there is a learning rate and a number of examples."""
    check_lr(lr)
    check_counts(batch_size=batch_size)
    check_tensors("params", params)
    check_tensors("grads", grads)
    if [(p.shape, p.dtype, p.device) for p in params] != [(g.shape, g.dtype, g.device) for g in grads]:
        raise ValueError("each parameter needs a gradient of its shape, dtype and device, got parameters of shapes "
                         f"{[tuple(p.shape) for p in params]} and gradients of {[tuple(g.shape) for g in grads]}")


def check_examples(count: int) -> None:
    """Raise ValueError if there are none."""
    if count == 0:
        raise ValueError("there are no examples")
