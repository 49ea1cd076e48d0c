"""The oracle of everyday uses: the code of `torch.nn.DataParallel` itself, on k CPU "devices".

Its forward, and `scatter_kwargs`, `replicate`, `parallel_apply` and `gather`, are PyTorch's own. Only what moves numbers
between GPUs is exchanged, for what does the same on a CPU: `Scatter` cuts, `Broadcast` gives rank 0 the tensors
themselves and the others copies, `Gather` joins. The accelerator that `parallel_apply` asks for is a CPU without streams.
"""

import importlib
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn

CPU = torch.device("cpu")


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, devices, sizes, dim, x):
        ctx.dim = dim
        shards = x.chunk(len(devices), dim)  # as in C++
        # a GPU other than the first one has a copy, and here all count as others: no shard is a view of `x`
        return tuple(shard.clone() for shard in shards)

    @staticmethod
    def backward(ctx, *grads):
        return None, None, None, torch.cat(grads, ctx.dim)


class Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, devices, *tensors):
        ctx.num_tensors = len(tensors)
        copies = broadcast_coalesced(tensors, devices)
        ctx.mark_non_differentiable(*[row[i] for row in copies for i, needed in enumerate(ctx.needs_input_grad[1:])
                                      if not needed])
        return tuple(x for row in copies for x in row)

    @staticmethod
    def backward(ctx, *grads):  # as in torch's, what was not used has a gradient of zeros
        columns = [grads[i::ctx.num_tensors] for i in range(ctx.num_tensors)]
        return None, *[sum(column[1:], start=column[0]) for column in columns]


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, device, dim, *parts):
        ctx.dim, ctx.scalars = dim, dim == 0 and all(x.dim() == 0 for x in parts)
        parts = [x.view(1) for x in parts] if ctx.scalars else parts
        ctx.sizes = [x.size(dim) for x in parts]
        with torch.autocast("cpu", enabled=False):  # the primitive in C++ knows nothing of it
            return torch.cat(parts, dim).to(device)

    @staticmethod
    def backward(ctx, grad):
        grads = grad.split(ctx.sizes, ctx.dim)
        return None, None, *[g[0] if ctx.scalars else g for g in grads]


def broadcast_coalesced(tensors, devices):
    return [list(tensors), *[[x.detach().clone() for x in tensors] for _ in devices[1:]]]


class OnCPU:
    """`torch`, as `parallel_apply` sees it, where the accelerator is a CPU."""

    accelerator = SimpleNamespace(is_available=lambda: True, current_accelerator=lambda: CPU,
                                  current_stream=lambda device: nullcontext(), device_index=lambda device: nullcontext())

    def is_autocast_enabled(self):
        return torch.is_autocast_enabled("cpu")

    def __getattr__(self, name):
        return getattr(torch, name)


@contextmanager
def torch_on_cpu():
    """Within this block `theirs` works, and `nn.DataParallel` is not itself."""
    parts = {name: importlib.import_module(f"torch.nn.parallel.{name}")
             for name in ("data_parallel", "replicate", "scatter_gather", "parallel_apply", "_functions", "comm")}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("data_parallel", "replicate", "parallel_apply"):
            patch.setattr(parts[name], "_get_device_index", lambda device, optional=False: device)
        patch.setattr(parts["data_parallel"], "_get_available_device_type", lambda: "cpu")
        patch.setattr(parts["_functions"], "Broadcast", Broadcast)  # replicate imports it when it is called
        patch.setattr(parts["comm"], "broadcast_coalesced", broadcast_coalesced)
        patch.setattr(parts["scatter_gather"], "Scatter", Scatter)
        patch.setattr(parts["scatter_gather"], "Gather", Gather)
        patch.setattr(parts["parallel_apply"], "torch", OnCPU())
        yield


def theirs(module, k, output_device="cpu", dim=0):
    """torch.nn.DataParallel of `module` on `k` devices."""
    parallel = nn.DataParallel(module, list(range(k)), output_device, dim)
    parallel.src_device_obj = CPU  # a tensor on a CPU has no number
    return parallel
