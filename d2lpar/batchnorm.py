"""BatchNorm whose batch is cut over devices: every replica normalises with the statistics of the whole.

`SyncBatchNorm` does what `torch.nn.SyncBatchNorm` does on GPUs, and also on a CPU: alone it is BatchNorm; on virtual
devices, in what `run_on_devices` or `DataParallel` runs, and in processes of one group, such as those of `run_ranks`,
the replicas exchange their statistics, once in the forward pass and once in the backward pass.
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
    """Raise RuntimeError in a backward pass that is itself to be differentiated."""
    if torch.is_grad_enabled():
        raise RuntimeError("a SyncBatchNorm cannot be differentiated twice: create_graph=True is not supported")


def check_input(x: Tensor, layer: SyncBatchNorm) -> None:
    """Raise ValueError unless x has as many channels as this layer, and real numbers."""
    if x.dim() < 2 or x.shape[1] != layer.num_features or not x.is_floating_point():
        raise ValueError(f"expected {layer.num_features} channels of real numbers, got {shown(x)}")


def check_enough(count: int) -> None:
    """Raise ValueError unless a variance can be computed from so many values."""
    if count < 2:
        raise ValueError(f"more than one value per channel is needed in training, got {count} on all ranks together")


def check_moments(counts: Sequence[int], means: Sequence[Tensor], squares: Sequence[Tensor]) -> None:
    """Raise ValueError unless there are a count, means and squares for each shard, of one shape."""
    if not len(counts) == len(means) == len(squares) > 0:
        raise ValueError(f"each shard needs a count, means and squares, got {len(counts)}, {len(means)} and "
                         f"{len(squares)}")
    if len(shapes := {tuple(x.shape) for x in [*means, *squares]}) > 1:
        raise ValueError(f"means and squares must be of one shape, got {sorted(shapes)}")


def moments(x):
    """Of each channel of x (B, C, ...): how many values, their mean, their squares.
    The squares are those of the distances from the mean, summed up.

    Without any values all three are 0.
    """
    count, dims = x.numel() // x.shape[1], over_examples(x)
    mean = x.sum(dims) / max(count, 1)
    squares = (x - along_channels(mean, x)).square().sum(dims)
    return count, mean, squares


def combine_moments(counts, means, squares):
    """The moments of the whole from those of its shards, some of which may be empty.

    Source: Chan et al., 1983, there for two shards at a time.
    """
    check_moments(counts, means, squares)  # package only
    count = sum(counts)
    zero = torch.zeros_like(means[0])
    mean = sum((n * m for n, m in zip(counts, means)), zero) / max(count, 1)
    between = sum((n * (m - mean).square() for n, m in zip(counts, means)), zero)
    return count, mean, sum(squares, zero) + between


class Normalize(torch.autograd.Function):
    """(x - mean) * factor, where both come from the whole batch, and so from `x`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, factor: Tensor, count: int, ranks: int
    ) -> Tensor:
        """`x` (B, C, ...) normalised; `factor` is 1 / sqrt(variance + eps)."""
        normal = (x - along_channels(mean, x)) * along_channels(factor, x)
        ctx.save_for_backward(normal, factor)
        ctx.count, ctx.ranks = count, ranks
        return normal

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        """The gradient of `x`; all ranks exchange two sums for each channel."""
        check_first_derivative()
        [grad], (normal, factor) = grads, ctx.saved_tensors
        dims = over_examples(grad)
        sums = torch.cat([grad.sum(dims), (grad * normal).sum(dims)])
        total = torch.stack(all_gather_vectors(sums, ctx.ranks)).sum(0)
        mean, slope = (along_channels(t, grad) for t in (total / ctx.count).chunk(2))
        own = (grad - mean - normal * slope) * along_channels(factor, grad)
        return own, None, None, None, None


class SyncBatchNorm(_BatchNorm):
    """BatchNorm for inputs (B, C, ...) with the statistics of the whole batch.

    The whole is what all ranks see together that run this layer at the same time: in
    one call of `run_on_devices`, in a `DataParallel`, or in a process group. Alone it
    is `nn.BatchNorm1d`, 2d or 3d, with the same arguments and the same state. An
    exchange is a meeting: all ranks must go through the same layers in the same order.
    Gradients of weight and bias are those of the rank's own shard, as of any layer.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input (B, C, ...), in its own dtype."""
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
        """Move the running statistics towards the batch, whose variance is unbiased."""
        seen = self.get_buffer("num_batches_tracked").add_(1)
        # without a momentum, the mean of all batches so far
        step = 1 / seen.item() if self.momentum is None else self.momentum
        for name, new in (("mean", mean), ("var", squares / (count - 1))):
            running = self.get_buffer(f"running_{name}")
            running.lerp_(new.to(running.dtype), step)


def moments_of_all(x, ranks):
    """The moments of what all ranks have, alike on each of them: one exchange."""
    count, mean, squares = moments(x)
    own = torch.cat([mean.new_tensor([count]), mean, squares])
    parts = all_gather_vectors(own, ranks)
    counts = [round(part[0].item()) for part in parts]
    means, squares = zip(*[part[1:].chunk(2) for part in parts])
    return combine_moments(counts, means, squares)


def all_gather_vectors(own: Tensor, ranks: int) -> list[Tensor]:
    """The vectors of all ranks, in rank order, where this rank has its own."""
    if ranks == 1:
        return [own]
    if num_ranks_here() == ranks:
        parts = [part.to(own.device) for part in all_gather_here(own)]
    elif num_ranks_here() in (None, 1) and num_processes() == ranks:
        parts = [torch.empty_like(own) for _ in range(ranks)]
        dist.all_gather(parts, own)
    else:
        raise RuntimeError(
            f"the forward pass was that of {ranks} ranks at once, and the backward pass is not. Run it by "
            "run_on_devices too, as DataParallel does, or use a process for each rank")
    if any(part.shape != own.shape for part in parts):
        raise ValueError(f"the ranks are not in the same layer: they give {[len(part) for part in parts]} numbers")
    return parts


def num_ranks() -> int:
    """How many ranks have the batch between them: of the run_on_devices call, or of the process group, or 1."""
    here = num_ranks_here() or 1
    processes = num_processes()
    if here > 1 and processes > 1:
        raise RuntimeError(f"{here} virtual devices in each of {processes} processes: SyncBatchNorm is for the one "
                           "or for the other")
    return max(here, processes)


def num_processes() -> int:
    """How many are in the process group, or 1."""
    return dist.get_world_size() if dist.is_initialized() else 1


def over_examples(x: Tensor) -> list[int]:
    """All dimensions of x (B, C, ...) but that of the channels."""
    return [0, *range(2, x.dim())]


def along_channels(v: Tensor, x: Tensor) -> Tensor:
    """The vector `v`, one number per channel of x (B, C, ...), in a shape that goes with `x`."""
    return v.view(1, -1, *[1] * (x.dim() - 2))


def convert_batchnorm(module: nn.Module) -> nn.Module:
    """Make every BatchNorm of `module` a `SyncBatchNorm`, in place; gives `module` back.

    The layers stay the same objects, with their parameters, statistics and hooks; only
    their class is another. So an optimizer that knows the parameters goes on.

    Raises:
        ValueError: before anything is changed, for a layer that has no shape yet, or a
            BatchNorm of a class that is not PyTorch's own.
    """
    found = [(name, m) for name, m in module.named_modules()
             if isinstance(m, _BatchNorm) and not isinstance(m, SyncBatchNorm)]
    for name, m in found:
        where = name or "the module itself"
        if type(m) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
            raise ValueError(f"{where} is a {type(m).__name__}, and may do something else than BatchNorm")
    for _, m in found:
        m.__class__ = SyncBatchNorm
    return module
