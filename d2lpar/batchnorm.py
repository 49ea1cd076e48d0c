"""BatchNorm for a batch that is split over devices: every replica normalises with the statistics of the whole batch.

`SyncBatchNorm` does what `torch.nn.SyncBatchNorm` does on GPUs, and does it on a CPU, too. On its own it is plain
BatchNorm. On virtual devices (inside `run_on_devices` or `DataParallel`) and in the processes of one group (such as
those of `run_ranks`) the replicas exchange statistics, once in the forward pass and once in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from d2lpar.checks import shown
from d2lpar.devices import all_gather_here, num_ranks_here


def check_first_derivative() -> None:
    """Raise RuntimeError if the backward pass itself is to be differentiated."""
    if torch.is_grad_enabled():
        raise RuntimeError("a SyncBatchNorm cannot be differentiated twice: create_graph=True is not supported")


def check_input(x: Tensor, layer: SyncBatchNorm) -> None:
    """Raise ValueError unless x is a floating-point tensor with this layer's number of channels."""
    if x.dim() < 2 or x.shape[1] != layer.num_features or not x.is_floating_point():
        raise ValueError(f"expected a floating-point tensor with {layer.num_features} channels, got {shown(x)}")


def check_enough(count: int) -> None:
    """Raise ValueError unless `count` values are enough to compute a variance."""
    if count < 2:
        raise ValueError(f"training needs more than one value per channel, got {count} over all ranks")


def check_moments(counts: Sequence[int], means: Sequence[Tensor], squares: Sequence[Tensor]) -> None:
    """Raise ValueError unless each shard has a count, means and squares, all of the same shape."""
    if not len(counts) == len(means) == len(squares) > 0:
        raise ValueError(f"each shard needs a count, means and squares, got {len(counts)}, {len(means)} and "
                         f"{len(squares)}")
    if len(shapes := {tuple(x.shape) for x in [*means, *squares]}) > 1:
        raise ValueError(f"means and squares must all have the same shape, got {sorted(shapes)}")


def moments(x):
    """For each channel of x (B, C, ...): the number of values, their mean, and the sum
    of their squared distances from that mean.

    For an empty x all three are 0.
    """
    count, dims = x.numel() // x.shape[1], over_examples(x)
    mean = x.sum(dims) / max(count, 1)
    squares = (x - along_channels(mean, x)).square().sum(dims)
    return count, mean, squares


def combine_moments(counts, means, squares):
    """The moments of the whole batch from its shards' moments; a shard may be empty.

    Source: Chan et al., 1983, for two shards at a time.
    """
    check_moments(counts, means, squares)  # package only
    count = sum(counts)
    zero = torch.zeros_like(means[0])
    mean = sum((n * m for n, m in zip(counts, means)), zero) / max(count, 1)
    between = sum((n * (m - mean).square() for n, m in zip(counts, means)), zero)
    return count, mean, sum(squares, zero) + between


def gradient_of_input(grad, normal, factor, count, ranks):
    """The gradient of the loss with respect to this rank's input, from one exchange;
    `normal` is this rank's output y, and `grad` the gradient with respect to y.

    Both have the input's shape (B, C, ...); `factor` is a vector with one value per channel, and `count` is
    the number of values per channel on all ranks together.
    """
    dims = over_examples(grad)
    own = torch.cat([grad.sum(dims), (grad * normal).sum(dims)])
    total = torch.stack(all_gather_vectors(own, ranks)).sum(0)
    mean, slope = (along_channels(t, grad) for t in (total / count).chunk(2))
    return (grad - mean - normal * slope) * along_channels(factor, grad)


class Normalize(torch.autograd.Function):
    """(x - mean) * factor, where mean and factor depend on the whole batch."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, factor: Tensor, count: int, ranks: int
    ) -> Tensor:
        """Normalise `x` (B, C, ...); `factor` is 1 / sqrt(variance + eps)."""
        normal = (x - along_channels(mean, x)) * along_channels(factor, x)
        ctx.save_for_backward(normal, factor)
        ctx.count, ctx.ranks = count, ranks
        return normal

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        """The gradient of `x`; the ranks exchange two sums per channel."""
        check_first_derivative()
        [grad], (normal, factor) = grads, ctx.saved_tensors
        own = gradient_of_input(grad, normal, factor, ctx.count, ctx.ranks)
        return own, None, None, None, None


class SyncBatchNorm(_BatchNorm):
    """BatchNorm for inputs (B, C, ...) with the statistics of the whole batch.

    The whole batch consists of the inputs of all ranks that run this layer together:
    in one call of `run_on_devices`, in a `DataParallel`, or in a process group. On its
    own, the layer is `nn.BatchNorm1d`, 2d or 3d, with the same arguments and state.
    Ranks wait for each other in every exchange, so all of them must go through the
    same layers in the same order. The gradients of weight and bias come from the
    rank's own shard, as in any other layer.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input (B, C, ...), in the input's dtype."""
        check_input(input, self)
        if not self.training and self.running_mean is not None:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight,
                                self.bias, eps=self.eps)
        x = input if input.dtype is torch.float64 else input.float()
        ranks = num_ranks()
        with torch.no_grad():
            count, mean, squares = moments_of_all(x, ranks)
            check_enough(count)
            tracked = self.track_running_stats and self.running_mean is not None
            if self.training and tracked:
                self.update_running_stats(count, mean, squares)
            factor = (squares / count + self.eps).rsqrt()
        y = Normalize.apply(x, mean, factor, count, ranks)
        if self.weight is not None:
            y = y * along_channels(self.weight, x)
        if self.bias is not None:
            y = y + along_channels(self.bias, x)
        return y.to(input.dtype)

    def update_running_stats(self, count: int, mean: Tensor, squares: Tensor) -> None:
        """Move the running statistics towards the batch's mean and unbiased variance."""
        seen = self.get_buffer("num_batches_tracked").add_(1)
        # without a momentum: the mean over all batches so far
        step = 1 / seen.item() if self.momentum is None else self.momentum
        for name, new in (("mean", mean), ("var", squares / (count - 1))):
            running = self.get_buffer(f"running_{name}")
            running.lerp_(new.to(running.dtype), step)


def moments_of_all(x, ranks):
    """The moments of the whole batch, the same on every rank, from one exchange."""
    count, mean, squares = moments(x)
    own = torch.cat([mean.new_tensor([count]), mean, squares])
    parts = all_gather_vectors(own, ranks)
    counts = [round(part[0].item()) for part in parts]
    means, squares = zip(*[part[1:].chunk(2) for part in parts])
    return combine_moments(counts, means, squares)


def all_gather_vectors(own: Tensor, ranks: int) -> list[Tensor]:
    """The vectors of all ranks, in rank order; `own` is this rank's vector."""
    if ranks == 1:
        return [own]
    if num_ranks_here() == ranks:
        parts = [part.to(own.device) for part in all_gather_here(own)]
    elif num_ranks_here() in (None, 1) and num_processes() == ranks:
        parts = [torch.empty_like(own) for _ in range(ranks)]
        dist.all_gather(parts, own)
    else:
        raise RuntimeError(
            f"the forward pass ran on {ranks} ranks at once, but the backward pass does not. Run the backward pass "
            "with run_on_devices too, as DataParallel does, or use one process per rank")
    if any(part.shape != own.shape for part in parts):
        raise ValueError(f"the ranks are not in the same layer: they sent {[len(part) for part in parts]} values")
    return parts


def num_ranks() -> int:
    """How many ranks share the batch: those of the run_on_devices call or of the process group, or 1."""
    here = num_ranks_here() or 1
    processes = num_processes()
    if here > 1 and processes > 1:
        raise RuntimeError(f"{here} virtual devices in each of {processes} processes: SyncBatchNorm supports one or "
                           "the other, not both")
    return max(here, processes)


def num_processes() -> int:
    """The number of processes in the group, or 1 without a group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def over_examples(x: Tensor) -> list[int]:
    """All dimensions of x (B, C, ...) except the channel dimension."""
    return [0, *range(2, x.dim())]


def along_channels(v: Tensor, x: Tensor) -> Tensor:
    """The vector `v`, one value per channel of x (B, C, ...), in a shape that broadcasts over `x`."""
    return v.view(1, -1, *[1] * (x.dim() - 2))


def convert_batchnorm(module: nn.Module) -> nn.Module:
    """Turn every BatchNorm in `module` into a `SyncBatchNorm`, in place; return `module`.

    The layers remain the same objects, with their parameters, statistics and hooks;
    only their class changes. So an existing optimizer still holds the right parameters.

    Raises:
        ValueError: for a lazy layer that has no shape yet, or for a subclass of
            BatchNorm that is not PyTorch's own; nothing is changed in that case.
    """
    found = [(name, m) for name, m in module.named_modules()
             if isinstance(m, _BatchNorm) and not isinstance(m, SyncBatchNorm)]
    for name, m in found:
        where = name or "the module itself"
        if type(m) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
            raise ValueError(f"{where} has the type {type(m).__name__}, which may do something other than BatchNorm")
    for _, m in found:
        m.__class__ = SyncBatchNorm
    return module
