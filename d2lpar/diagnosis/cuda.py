"""Redirect calls for a CUDA device to the CPU, so that a script for GPUs runs on a machine without one."""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.device_mesh
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader

from d2lpar.batchnorm import convert_batchnorm

# the functions of torch.cuda and torch.accelerator that do nothing here
MEMORY_BYTES = 80 * 2**30  # of a GPU that is not there
WITHOUT_EFFECT = ("set_device synchronize empty_cache manual_seed manual_seed_all reset_peak_memory_stats init "
                  "reset_max_memory_allocated set_device_index").split()


@contextmanager
def cuda_on_the_cpu(rank: int | None, k: int, pretend: bool = False) -> Iterator[set[str]]:
    """Redirect calls for a CUDA device to the CPU; the set then names these calls, in words for a note.

    With `pretend`, PyTorch also reports `k` GPUs, and process groups use gloo instead of NCCL. `rank` is
    the current device; None if only the environment knows it.
    """
    asked: set[str] = set()
    wrap = DistributedDataParallel.__init__
    load = torch.load

    def wrap_on_the_cpu(self: Any, module: nn.Module, device_ids: Any = None, output_device: Any = None,
                        *args: Any, **kwargs: Any) -> None:
        if device_ids or output_device is not None:
            asked.add("device_ids")
        wrap(self, module, None, None, *args, **kwargs)

    def convert(module: nn.Module, process_group: Any = None) -> nn.Module:
        asked.add("SyncBatchNorm (a CPU version)")
        return convert_batchnorm(module)

    def load_on_the_cpu(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        names_cuda = is_cuda(map_location) or isinstance(map_location, dict) or callable(map_location)
        return load(f, "cpu" if names_cuda else map_location, *args, **kwargs)

    def current() -> int:
        return int(os.environ.get("LOCAL_RANK", 0)) if rank is None else rank

    replaced = [(DistributedDataParallel, "__init__", wrap_on_the_cpu), (torch, "load", load_on_the_cpu),
                (nn.SyncBatchNorm, "convert_sync_batchnorm", convert),
                (torch.cuda, "device_count", lambda: k if pretend or rank is not None else 0),
                (torch.cuda, "current_device", current)]
    replaced += [(module, name, lambda *args, **kwargs: None) for module in (torch.cuda, torch.accelerator)
                 for name in WITHOUT_EFFECT if hasattr(module, name)]
    replaced += _pretended(k, current) if pretend else []
    with _OnCPU(asked), ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, _with_signature(getattr(owner, name), value)))
        yield asked


def _pretended(k: int, current: Callable[[], int]) -> list[tuple[Any, str, Any]]:
    """The replacements that make PyTorch report k GPUs, and build process groups and meshes for them on the CPU."""
    load_batches, init, new_group = DataLoader.__init__, dist.init_process_group, dist.new_group
    barrier, mesh, fork_rng = dist.barrier, dist.init_device_mesh, torch.random.fork_rng

    def load_without_pinning(self: Any, *args: Any, **kwargs: Any) -> None:
        load_batches(self, *args, **kwargs)
        self.pin_memory = False

    def init_with_gloo(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return init("gloo", *args, **kwargs)

    def new_group_with_gloo(ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None,
                            *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return new_group(ranks, timeout, "gloo", None, *args, **kwargs)

    def fork_without_gpus(devices: Any = None, enabled: bool = True, **kwargs: Any) -> Any:
        return fork_rng([], enabled)

    def wait_for_all(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return barrier(group, async_op)

    def make_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return mesh("cpu", *args, **kwargs)

    values: dict[str, Any] = {
        "is_available": lambda: True, "is_bf16_supported": lambda *args: True, "max_memory_allocated": lambda *args: 0,
        "max_memory_reserved": lambda *args: 0, "memory_allocated": lambda *args: 0, "memory_reserved": lambda *args: 0,
        "get_device_name": lambda *args: "no GPU", "get_device_capability": lambda *args: (0, 0),
        "get_device_properties": lambda *args: SimpleNamespace(name="no GPU", total_memory=MEMORY_BYTES, major=0,
                                                               minor=0, multi_processor_count=1),
        "memory_stats": lambda *args: defaultdict(int), "memory_summary": lambda *args, **kwargs: "no GPU",
        "memory_snapshot": lambda *args: [], "utilization": lambda *args: 0,
        "mem_get_info": lambda *args: (MEMORY_BYTES, MEMORY_BYTES), "device": lambda device: nullcontext(),
        "get_rng_state": lambda *args: torch.get_rng_state(), "set_rng_state": lambda *args: None,
        "get_rng_state_all": lambda: [torch.get_rng_state()] * k, "set_rng_state_all": lambda *args: None,
        "is_current_stream_capturing": lambda: False, "Event": _Event, "Stream": _Stream,
        "current_stream": _Stream, "default_stream": _Stream, "stream": lambda stream: nullcontext()}
    of_any = {"is_available": lambda *args: True, "device_count": lambda: k, "current_device_index": current,
              "current_stream": _Stream, "current_accelerator": lambda *args, **kwargs: torch.device("cuda")}
    return [(torch.cuda, name, value) for name, value in values.items()] + [
        (torch.accelerator, name, value) for name, value in of_any.items() if hasattr(torch.accelerator, name)] + [
        (Tensor, "record_stream", lambda *args: None), (torch, "set_default_device", lambda device: None),
        (torch.random, "fork_rng", fork_without_gpus), (DataLoader, "__init__", load_without_pinning),
        (dist, "init_process_group", init_with_gloo),
        (dist.distributed_c10d, "init_process_group", init_with_gloo), (dist, "new_group", new_group_with_gloo),
        (dist.distributed_c10d, "new_group", new_group_with_gloo), (dist.device_mesh, "new_group", new_group_with_gloo),
        (dist, "barrier", wait_for_all),
        (dist, "init_device_mesh", make_mesh), (dist.device_mesh, "init_device_mesh", make_mesh),
        (dist, "is_nccl_available", lambda: True)]


def _with_signature(old: Any, new: Any) -> Any:
    """What replaces a function, with that one's name and signature, which a trainer may look at."""
    if not (inspect.isroutine(old) and inspect.isfunction(new)):
        return new

    @functools.wraps(old)
    def instead(*args: Any, **kwargs: Any) -> Any:
        return new(*args, **kwargs)

    return instead


class _Event:
    """Replaces torch.cuda.Event."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.at_s = 0.0

    def record(self, *args: Any) -> None:
        self.at_s = time.perf_counter()

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: _Event) -> float:
        return 1e3 * (end.at_s - self.at_s)


class _Stream:
    """Replaces torch.cuda.Stream: everything is done when the call returns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """It needs nothing."""

    def is_capturing(self) -> bool:
        return False

    def query(self) -> bool:
        return True

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: object) -> None:
        """It needs nothing."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    wait_stream = wait_event = record_event = lambda self, *args: None


class _OnCPU(TorchFunctionMode):
    """Tensors are moved to the CPU, or made there, where a CUDA device is named."""

    def __init__(self, asked: set[str]) -> None:
        super().__init__()
        self.asked = asked

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.cuda, Tensor.pin_memory):
            self.asked.add(".cuda()")
            return args[0]
        if func is Tensor.to and any(map(is_cuda, args[1:])):
            self.asked.add(".to(a CUDA device)")
            args = (args[0], *("cpu" if is_cuda(x) else x for x in args[1:]))
        if is_cuda(kwargs.get("device")):
            self.asked.add("device=")
            kwargs = kwargs | {"device": "cpu"}
        return func(*args, **kwargs)


def is_cuda(device: Any) -> bool:
    """Whether this names a CUDA device: "cuda", "cuda:1", 1, or a torch.device."""
    if isinstance(device, bool) or not isinstance(device, (int, str, torch.device)):
        return False
    return isinstance(device, int) or str(device).startswith("cuda")
