"""What `DistributedDataParallel` does, built in steps (chapter 6): one start, and gradients averaged on every rank.

All of this is called by every rank of a group, each with its own replica of one network. A loss that is a mean over the
shard gives the mean of means; for shards that differ in size, take the sum over the shard, times the number of ranks,
divided by the size of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable

from d2lpar.checks import check_counts, check_module, check_tensors
from d2lpar.ranks import rank_device


def broadcast_start(module: nn.Module) -> None:
    """Give every replica the parameters and the module's buffers of rank 0.

    Taught in: notebooks/06_processes_and_ddp.ipynb
    """
    check_replicas(module)
    for x in chain(module.parameters(), module.buffers()):
        start = x.detach().contiguous()
        dist.broadcast(start, src=0)
        x.detach().copy_(start)


def average_gradients(module: nn.Module) -> None:
    """After backward: replace each gradient by its mean over the ranks, one by one.

    Where a rank has no gradient, it counts as zeros, and gets the mean.
    Taught in: notebooks/06_processes_and_ddp.ipynb
    """
    check_replica(module)
    for p in trainable(module):
        total = gradient_of(p).contiguous()
        dist.all_reduce(total)
        torch.div(total, dist.get_world_size(), out=p.grad)


def average_flat(module: nn.Module) -> None:
    """After backward: as `average_gradients`, with one collective for all of them.

    Taught in: notebooks/06_processes_and_ddp.ipynb
    """
    check_replica(module)
    params = trainable(module)
    flat = joined(params)
    dist.all_reduce(flat)
    write_means(params, flat)


def average_in_hooks(module: nn.Module) -> None:
    """From now on every backward averages the gradients, from the last one on.

    Taught in: notebooks/06_processes_and_ddp.ipynb
    """
    check_replicas(module)
    params, there, sent = trainable(module)[::-1], set(), []

    def arrive(*new: Tensor) -> None:
        if not there:
            at_end_of_backward(finish)
        there.update(new)
        while len(sent) < len(params) and params[len(sent)] in there:
            total = gradient_of(params[len(sent)]).contiguous()
            sent.append((total, dist.all_reduce(total, async_op=True)))

    def finish() -> None:
        arrive(*params)  # what has not come counts as zeros
        for p, (total, work) in zip(params, sent):
            work.wait()
            torch.div(total, dist.get_world_size(), out=p.grad)
        there.clear()
        sent.clear()

    for p in params:
        p.register_post_accumulate_grad_hook(arrive)


def assign_buckets(
    tensors: Sequence[Tensor], first_bytes: int = 2**20, cap_bytes: int = 25 * 2**20
) -> list[list[int]]:
    """Which tensors travel together: their places, from the last tensor backwards.

    A bucket is closed as soon as it has reached its cap, so it may be larger. The first
    one has a smaller cap, so that it can leave early. One dtype and device in each.
    Source: `dist.Reducer` of PyTorch, described by Li et al., 2020, section 4.2.
    Taught in: notebooks/06_processes_and_ddp.ipynb
    """
    check_tensors("tensors", tensors)
    check_counts(first_bytes=first_bytes, cap_bytes=cap_bytes)
    closed, filling, caps = [], {}, {}
    for i in reversed(range(len(tensors))):
        kind = tensors[i].dtype, tensors[i].device
        bucket = filling.setdefault(kind, [])
        bucket.append(i)
        if sum(tensors[j].nbytes for j in bucket) >= caps.get(kind, first_bytes):
            closed.append(filling.pop(kind))
            caps[kind] = cap_bytes
    return closed + list(filling.values())


class OwnDDP(nn.Module):
    """`module`, started as on rank 0, its gradients averaged while backward runs.

    The buckets leave in the same order on every rank, so ranks may differ in which
    gradients come first, or at all: at the end of backward, what has not come counts as
    it is, or as zeros. RuntimeError in the forward pass if other parameters are trained
    than when the module was wrapped, or if a backward pass was left by an error.
    """

    def __init__(self, module: nn.Module, first_bytes: int = 2**20,
                 cap_bytes: int = 25 * 2**20) -> None:
        super().__init__()
        broadcast_start(module)
        self.module = module
        params = trainable(module)
        self.buckets = [[params[i] for i in places]
                        for places in assign_buckets(params, first_bytes, cap_bytes)]
        self._flat = [torch.cat([p.detach().flatten() for p in bucket])
                              for bucket in self.buckets]
        self._bucket_of: dict[Tensor, int] = {
            p: number for number, bucket in enumerate(self.buckets) for p in bucket}
        for p in params:
            p.register_post_accumulate_grad_hook(self._arrived)
        self._begin()

    def _begin(self) -> None:
        self._missing = [len(bucket) for bucket in self.buckets]
        self._sent: list[tuple[Tensor, dist.Work]] = []
        self._in_backward = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What `module` gives."""
        check_unchanged(self.module, list(self._bucket_of))
        if self._in_backward:
            raise RuntimeError("a backward pass was left by an error, and gradients "
                               "may be on their way: begin again on all ranks")
        return self.module(*args, **kwargs)

    def _arrived(self, p: Tensor) -> None:
        if not self._in_backward:
            self._in_backward = True
            at_end_of_backward(self._finish)
        self._missing[self._bucket_of[p]] -= 1
        while self._sent_fewer_than_all() and self._missing[len(self._sent)] == 0:
            self._send_next()

    def _sent_fewer_than_all(self) -> bool:
        return len(self._sent) < len(self.buckets)

    def _send_next(self) -> None:
        number = len(self._sent)
        flat = joined(self.buckets[number], self._flat[number])
        self._sent.append((flat, dist.all_reduce(flat, async_op=True)))

    def _finish(self) -> None:
        while self._sent_fewer_than_all():  # a gradient has not come
            self._send_next()
        for bucket, (flat, work) in zip(self.buckets, self._sent):
            work.wait()
            write_means(bucket, flat)
        self._begin()


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that a gradient reaches, each once, also where it is tied."""
    return [p for p in module.parameters() if p.requires_grad]


def gradient_of(p: Tensor) -> Tensor:
    """The gradient of `p`, which is made of zeros if the loss of this rank did not depend on it."""
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    if p.grad.layout != torch.strided:
        raise ValueError(f"the gradient of a parameter of shape {tuple(p.shape)} is sparse: it cannot travel as one "
                         "buffer; make the layer with sparse=False")
    return p.grad


def joined(params: Sequence[Tensor], buffer: Tensor | None = None) -> Tensor:
    """The gradients of `params` in one buffer; zeros for one that is not there."""
    with torch.no_grad():
        return torch.cat([gradient_of(p).flatten() for p in params], out=buffer)


def write_means(params: Sequence[Tensor], flat: Tensor) -> None:
    """Divide the sums in `flat` by the number of ranks: the gradients of `params`."""
    with torch.no_grad():
        for p, total in zip(params, flat.split([p.numel() for p in params])):
            torch.div(total.view_as(p), dist.get_world_size(), out=p.grad)


def at_end_of_backward(fn: Callable[[], None]) -> None:
    """Have `fn` called at the end of this backward pass, before it returns."""
    Variable._execution_engine.queue_callback(fn)  # not public, but PyTorch's own way


def check_replica(module: nn.Module) -> None:
    """Raise ValueError unless `module` is a replica that this rank of a group can train."""
    check_module(module)
    if not dist.is_initialized():
        raise ValueError("there is no group of processes: call this in a function that run_ranks runs, or after "
                         "dist.init_process_group")
    for name, x in chain(module.named_parameters(), module.named_buffers()):
        if nn.parameter.is_lazy(x):
            raise ValueError(f"{name} has no shape yet: call the network once before")
        if x.device != rank_device():
            raise ValueError(f"{name} is on {x.device}, and this rank's device is {rank_device()}: move the network "
                             "there with net.to(rank_device())")
    if not trainable(module):
        raise ValueError("the network has no parameter that requires a gradient")


def check_replicas(module: nn.Module) -> None:
    """Raise ValueError, on all ranks, unless every rank has a replica with the same names, shapes and dtypes."""
    check_replica(module)
    own = [(name, tuple(x.shape), str(x.dtype), x.requires_grad)
           for name, x in chain(module.named_parameters(), module.named_buffers())]
    every: list[list] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(every, own)
    for rank, theirs in enumerate(every):
        if theirs != every[0]:
            odd = sorted(set(theirs) ^ set(every[0])) or "their order"
            raise ValueError(f"the networks of rank 0 and rank {rank} differ in {odd}")


def check_unchanged(module: nn.Module, params: Sequence[Tensor]) -> None:
    """Raise RuntimeError unless `params` are still those of `module` that are trained."""
    wrapped = set(map(id, params))
    now = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
    if new := [name for key, name in now.items() if key not in wrapped]:
        raise RuntimeError(f"{', '.join(new)}: replaced or unfrozen since the module was wrapped, so nobody averages "
                           "the gradient; wrap the module again, on all ranks")
    if len(now) < len(wrapped):
        raise RuntimeError(f"{len(wrapped) - len(now)} parameters were frozen or taken away since the module was "
                           "wrapped; wrap it again, on all ranks")
