"""What `DistributedDataParallel` does, built in steps: one start, and gradients averaged on every rank.

All of this is called by every rank of a group, each with its own replica of one network. A loss that is a mean over the
shard gives the mean of means; for shards that differ in size, take the sum over the shard, times the number of ranks,
divided by the size of the whole batch.

A parameter that no rank has used ends with a gradient of zeros, not None, so weight decay moves it. Sums are divided
after they are made, so half precision can overflow where the library, which divides first, does not. With hooks, at
least one gradient must come in each backward on every rank, or the others wait for it. After a backward that raised,
and where a gradient comes in two parts, as of a layer in two reentrant checkpoints, `average_in_hooks` is no longer
right; `OwnDDP` notices both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from d2lpar.concise import count_right, labelled
from d2lpar.ranks import rank_device

ANEW = "build the network anew and wrap that, on all ranks"  # hooks of a first wrapper would stay, and send as well


def check_replica(module: nn.Module) -> None:
    """Raise ValueError unless `module` is a replica that this rank of a group can train."""
    if not dist.is_initialized():
        raise ValueError("there is no group of processes: call this in a function that run_ranks runs, or after "
                         "dist.init_process_group")
    for name, x in chain(module.named_parameters(), module.named_buffers()):
        if nn.parameter.is_lazy(x):
            raise ValueError(f"{name} has no shape yet: call the network once before")
        if x.device != rank_device():
            raise ValueError(f"{name} is on {x.device}, and this rank's device is {rank_device()}: move the network "
                             "there with net.to(rank_device())")
    if not trained_params(module):
        raise ValueError("the network has no parameter that requires a gradient")


def check_replicas(module: nn.Module) -> None:
    """Raise ValueError, on all ranks, unless each has a replica to train, with the same names, shapes and dtypes."""
    own: list | str
    try:
        check_replica(module)
        own = [(name, tuple(x.shape), str(x.dtype), x.requires_grad)
               for name, x in chain(module.named_parameters(), module.named_buffers())]
    except ValueError as error:
        if not dist.is_initialized():
            raise
        own = str(error)  # told to the others, who would wait for this rank
    every: list = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    if isinstance(own, str):
        raise ValueError(own)
    for rank, theirs in enumerate(every):
        if isinstance(theirs, str):
            raise ValueError(f"rank {rank} has no network to train: {theirs}")
        if theirs != every[0]:
            odd = sorted(set(theirs) ^ set(every[0])) or "their order"
            raise ValueError(f"the networks of rank 0 and rank {rank} differ in {odd}")


def check_unchanged(module: nn.Module, params: Sequence[Tensor]) -> None:
    """Raise RuntimeError unless `params` are still those of `module` that are trained."""
    wrapped = set(map(id, params))
    now = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
    if new := [name for key, name in now.items() if key not in wrapped]:
        raise RuntimeError(f"{', '.join(new)}: replaced or unfrozen since the module was wrapped, so nobody averages "
                           f"the gradient; {ANEW}")
    if len(now) < len(wrapped):
        raise RuntimeError(f"{len(wrapped) - len(now)} parameters were frozen or taken away since the module was "
                           f"wrapped; {ANEW}")


def broadcast_start(module):
    """Give every replica the parameters and the module's buffers of rank 0."""
    check_replicas(module)  # package only
    for x in chain(module.parameters(), module.buffers()):
        start = x.detach().contiguous()
        dist.broadcast(start, src=0)
        x.detach().copy_(start)


def average_gradients(module):
    """After backward: replace each gradient by its mean over the ranks, one by one.
    Where a rank has no gradient, it counts as zeros, and gets the mean."""
    check_replica(module)  # package only
    for p in trained_params(module):
        total = gradient_of(p)
        dist.all_reduce(total)
        total /= dist.get_world_size()


def average_flat(module):
    """After backward: as `average_gradients`, with one collective for all of them."""
    check_replica(module)  # package only
    params = trained_params(module)
    flat = flat_gradients(params)
    dist.all_reduce(flat)
    write_means(params, flat)


def sendable(order, arrived, num_sent):
    """A list of the gradients to send now: as early as possible, but in this order.
    The set `arrived` has those that are ready; the first `num_sent` have been sent."""
    ready = []
    for name in order[num_sent:]:
        if name not in arrived:
            break
        ready.append(name)
    return ready


def finish_average(order, arrived, works):
    """At the end of backward: wait for each sum, and make the gradient the mean.
    Empty `arrived` and `works`, in place, for the next backward."""
    for p, work in zip(order, works):
        work.wait()
        gradient_of(p).div_(dist.get_world_size())
    arrived.clear()
    works.clear()


def average_in_hooks(module):
    """Call it once: from then on each backward averages the gradients.

    After a backward that raised an error it is no longer right.
    """
    check_replicas(module)  # package only
    order, arrived, works = trained_params(module)[::-1], set(), []

    def arrive(*new):
        if not arrived:
            at_end_of_backward(finish)
        arrived.update(new)
        for p in sendable(order, arrived, len(works)):
            works.append(dist.all_reduce(gradient_of(p), async_op=True))

    def finish():
        arrive(*order)  # what has not come counts as zeros
        finish_average(order, arrived, works)

    for p in order:
        p.register_post_accumulate_grad_hook(arrive)


def assign_buckets(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """Which tensors travel together: lists of indices, from the last tensor backwards.
    A bucket is closed as soon as it has reached its cap, so it may be larger.

    The first one has a smaller cap, so that it can leave early.

    Source: `dist.Reducer` of PyTorch, described by Li et al., 2020, section 4.2.
    """
    closed, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(sizes_bytes))):
        bucket.append(i)
        if sum(sizes_bytes[j] for j in bucket) >= cap:
            closed.append(bucket)
            bucket, cap = [], cap_bytes
    if bucket:
        closed.append(bucket)
    return closed


def assign_by_kind(tensors: Sequence[Tensor], first_bytes: int, cap_bytes: int) -> list[list[int]]:
    """As `assign_buckets`, for each dtype and device apart, since a message has one of each.

    The buckets are in the order in which backward completes them: by their smallest index, from the largest down.
    """
    kinds: dict = {}
    for i, x in enumerate(tensors):
        kinds.setdefault((x.dtype, x.device), []).append(i)
    buckets = [[indices[j] for j in bucket] for indices in kinds.values()
               for bucket in assign_buckets([tensors[i].nbytes for i in indices], first_bytes, cap_bytes)]
    return sorted(buckets, key=min, reverse=True)


class OwnDDP(nn.Module):
    """`module`, started as on rank 0, its gradients averaged while backward runs.

    The buckets leave in the same order on every rank, so ranks may differ in which
    gradients come first, or at all: at the end of backward, what has not come counts as
    it is, or as zeros. RuntimeError in the forward pass if other parameters are trained
    than when the module was wrapped, or if a backward pass was left by an error; and in
    backward if a gradient comes twice.
    """

    def __init__(self, module: nn.Module, first_bytes: int = 2**20,
                 cap_bytes: int = 25 * 2**20) -> None:
        super().__init__()
        broadcast_start(module)
        self.module = module
        self._params = trained_params(module)
        self.buckets = [[self._params[i] for i in indices] for indices in
                        assign_by_kind(self._params, first_bytes, cap_bytes)]
        self._flat = [torch.cat([p.detach().flatten() for p in bucket])
                      for bucket in self.buckets]
        for p in self._params:
            p.register_post_accumulate_grad_hook(self._arrived)
        self._begin()

    def _begin(self) -> None:
        self._there: set[Tensor] = set()
        self._sent: list[tuple[Tensor, dist.Work]] = []

    def __deepcopy__(self, memo: dict) -> OwnDDP:
        raise TypeError("a copy would not average gradients, as the hooks stay with "
                        "the original: copy .module, and wrap the copy")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What `module` gives."""
        check_unchanged(self.module, self._params)
        if self._there:
            raise RuntimeError("a backward pass was left by an error, and gradients "
                               f"may be on their way: {ANEW}")
        return self.module(*args, **kwargs)

    def _arrived(self, p: Tensor) -> None:
        if not self._there:
            at_end_of_backward(self._finish)
        if p in self._there:
            raise RuntimeError(f"a gradient of shape {tuple(p.shape)} came twice in "
                               "one backward; its first part may have left already; "
                               "with checkpoint, set use_reentrant=False")
        self._there.add(p)
        while self._more() and self._there.issuperset(self.buckets[len(self._sent)]):
            self._send_next()

    def _more(self) -> bool:
        return len(self._sent) < len(self.buckets)

    def _send_next(self) -> None:
        number = len(self._sent)
        flat = flat_gradients(self.buckets[number], self._flat[number])
        self._sent.append((flat, dist.all_reduce(flat, async_op=True)))

    def _finish(self) -> None:
        while self._more():  # a gradient has not come
            self._send_next()
        for bucket, (flat, work) in zip(self.buckets, self._sent):
            work.wait()
            write_means(bucket, flat)
        self._begin()


def trained_params(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that a gradient reaches, each once, even if it is tied."""
    return [p for p in module.parameters() if p.requires_grad]


def gradient_of(p: Tensor) -> Tensor:
    """The gradient of `p`, in rows; zeros if the loss of this rank has not used `p`."""
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    if p.grad.layout != torch.strided:
        raise ValueError(f"the gradient of a parameter of shape {tuple(p.shape)} is "
                         "sparse: it cannot travel; make the layer with sparse=False")
    p.grad = p.grad.contiguous()
    return p.grad


def flat_gradients(params: Sequence[Tensor], buffer: Tensor | None = None) -> Tensor:
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


def unwrap_ddp(net: nn.Module) -> nn.Module:
    """The module that PyTorch's DDP has wrapped: it sends no buffers, so a rank may have more minibatches.

    A wrapper that `torch.compile` has put around DDP is taken off, too. Raises ValueError if DDP is further inside.
    """
    if isinstance(compiled := getattr(net, "_orig_mod", None), DistributedDataParallel):
        net = compiled
    inner = net.module if isinstance(net, DistributedDataParallel) else net
    if any(isinstance(m, DistributedDataParallel) for m in inner.modules()):
        raise ValueError("there is a DistributedDataParallel within the network, whose forward pass may wait for other "
                         "ranks: hand over what it has wrapped, its .module")
    return inner


def check_whole(module: nn.Module) -> None:
    """Raise ValueError if ranks hold only a part of a parameter, so that each forward pass waits for all of them."""
    if (any(getattr(m, "cut_over_ranks", False) for m in module.modules())
            or any(hasattr(p, "to_local") and p.to_local().numel() < p.numel() for p in module.parameters())):
        raise ValueError("the network is sharded: its forward pass gathers parameters from all ranks, and would wait "
                         "forever for a rank that has fewer minibatches. Give all ranks equally many, and add up what "
                         "count_right finds with one all_reduce")


@contextmanager
def in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Within the `with` block, `module` is in evaluation mode; afterwards, each part of it is in the mode it had."""
    was_training = [(m, m.training) for m in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for m, training in was_training:
            m.training = training


@torch.no_grad()
def count_right_on_ranks(net, data_iter):
    """How many examples of all ranks are put into the right class, and of how many.
    Every rank calls it with its replica on its device, and its own minibatches.

    Each rank's minibatches are its own, as many as it has, or none. Two whole numbers are summed up, once.
    """
    check_whole(unwrap_ddp(net))  # package only
    data_iter = labelled(data_iter)  # package only
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    with in_eval_mode(module):
        for X, y in data_iter:
            right += count_right(module, X.to(device), y.to(device))
            count += len(y)
    totals = torch.tensor([right, count], device=device)
    dist.all_reduce(totals)
    right, count = totals.tolist()
    return right, count
