"""What one step does when, on every rank: the spans of its timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from d2lpar.base.timing import Span, Stopwatch
from d2lpar.one_step.models import lenet, loss
from d2lpar.one_step.scratch import allreduce, fresh_gradients, sgd, split_batch


def record_step(run: Callable, X: Tensor, y: Tensor, replicas: Sequence[Sequence[Tensor]],
                devices: Sequence[torch.device], lr: float) -> list[Span]:
    """The step of `train_batch`, with a stopwatch around each of its parts: forward, backward, allreduce, update.

    `run` is what computes the shards: `map` one after the other, `run_on_devices` all at once.
    """
    watch, ranks = Stopwatch(devices), range(len(devices))
    X_shards, y_shards = split_batch(X, y, devices)

    def shard_backward(rank: int) -> None:
        with watch(rank, "forward", devices[rank]):
            shard_loss = loss(lenet(X_shards[rank], replicas[rank]), y_shards[rank]).sum()
        with watch(rank, "backward", devices[rank]):
            shard_loss.backward()

    with fresh_gradients(replicas):
        list(run(shard_backward, ranks))
        for copies in zip(*replicas):
            with ExitStack() as everyone:
                for rank in ranks:
                    everyone.enter_context(watch(rank, "allreduce", devices[rank]))
                allreduce([p.grad for p in copies])
        for rank in ranks:
            with watch(rank, "update", devices[rank]):
                sgd(replicas[rank], lr, batch_size=len(X))
    return watch.spans
