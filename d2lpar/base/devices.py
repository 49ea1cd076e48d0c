"""Devices, real and virtual, and a thread for each.

A page asks for k devices and gets k, whatever the machine has: different GPUs where there are enough of them, and
otherwise *virtual devices*. A virtual device on a CPU is one core: its work runs in a thread of its own, which uses a
fixed share of the cores, one unless told otherwise, whether there is one such device or eight.
The chapter on loops over devices shows why a thread is needed at all.
"""

from __future__ import annotations

import os
import platform
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from d2lpar.base.checks import check_counts, check_devices, check_functions, check_list, check_seeds
from d2lpar.base.interrupts import uninterrupted

ALL_CORES = torch.get_num_threads()  # what PyTorch takes for one operation when nobody limits it

_cores_per_device = 1
_calls: dict[int, SimpleQueue] = {}  # place in the list of devices -> what its thread is to call next
_calls_lock = threading.Lock()
_here = threading.local()  # .rank: the place whose thread this is


def _after_fork() -> None:
    """A forked child has none of the threads, and nobody who would release the lock."""
    global _calls_lock, _here
    _calls_lock, _here = threading.Lock(), threading.local()
    _calls.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def try_devices(k: int = 1) -> list[torch.device]:
    """Give a list of `k` devices: different GPUs if there are `k`, otherwise virtual devices.

    Virtual devices are dealt in turn over the physical ones: `cuda:0, cuda:1, cuda:0, ...`, or `cpu` `k` times.
    A tensor does not know on which virtual device it lies, so the place in this list is what identifies a replica.

    Raises:
        ValueError: if `k` is not a whole number of at least 1.
    """
    check_num_devices(k)
    gpus = torch.cuda.device_count()
    return [torch.device("cuda", rank % gpus) if gpus else torch.device("cpu") for rank in range(k)]


def check_num_devices(k: int) -> None:
    """Raise ValueError unless `k` is a whole number of at least 1."""
    check_counts(the_number_of_devices=k)


def describe_devices(devices: Sequence[torch.device], shares: bool = True) -> str:
    """One line for people: what each of `devices` is, and, unless told not to, its share of the cores."""
    check_devices(devices)
    if not devices:
        return "no devices"
    places = Counter(devices)
    parts = []
    for device, count in places.items():
        if device.type == "cpu":
            share = f"{_cores_per_device} of " * shares + f"{ALL_CORES} cores" + " each" * (shares and count > 1)
            parts.append(f"{count} virtual device{'s' * (count > 1)} on {cpu_name()}, {share}")
        else:
            name = f"{device} ({torch.cuda.get_device_name(device)})"
            parts.append(name if count == 1 else f"{count} virtual devices on {name}")
    return f"[{', '.join(map(str, devices))}]: " + ", ".join(parts)


@contextmanager
def cores_per_device(cores: int) -> Generator[None]:
    """Within this block, a virtual device on a CPU has `cores` cores instead of one (for every thread of the program).

    Raises:
        ValueError: if `cores` is not a whole number of at least 1.
    """
    global _cores_per_device
    check_counts(the_number_of_cores=cores)
    before, _cores_per_device = _cores_per_device, cores
    try:
        yield
    finally:
        _cores_per_device = before


def device_cores() -> int:
    """How many cores a virtual device on a CPU has just now; see `cores_per_device`."""
    return _cores_per_device


def run_on_devices(fn: Callable, *columns: Sequence, **same: Any) -> list:
    """Call `fn(columns[0][r], columns[1][r], ..., **same)` for all ranks r at once.

    Each device has a thread of its own, kept between calls. It is given the caller's
    grad mode, inference mode and autocast, which PyTorch keeps per thread, and its
    share of the cores. A backward pass that begins there is computed there, also on a
    GPU. Blocks until the last rank has finished, also when it is interrupted: an
    interrupt is raised when all are done, so that all of them have done the same (but
    the third one is obeyed at once).

    Args:
        columns: one or more lists of the same length, the number of devices.
        same: arguments that all ranks get alike.

    Returns:
        The results in rank order.

    Raises:
        ValueError: if the lists differ in length or there are none, or
            `fn` is no function.
        Exception: what `fn` raised on the lowest rank that failed, with a note that
            names the rank. By then all the other ranks have finished.
    """
    check_functions(fn=fn)
    for place, column in enumerate(columns):
        check_list(f"list {place}", column)
    lengths = [len(column) for column in columns]
    if not lengths or len(set(lengths)) > 1 or lengths[0] == 0:
        raise ValueError(f"each device needs one entry per list, got lengths {lengths}")
    if hasattr(_here, "rank"):
        raise RuntimeError(
            f"called in device {_here.rank}'s own thread: would wait forever")
    call = partial(_call, fn, same, _modes_of_this_thread(), _cores_per_device)
    done = _Meeting(lengths[0])  # where the ranks wait for one another, and end
    with uninterrupted():
        try:
            with _calls_lock:  # of two callers, one comes first on every rank
                queues = [_calls_of(rank) for rank in range(lengths[0])]
                for rank, args in enumerate(zip(*columns)):
                    queues[rank].put(partial(call, done, rank, args))
            ends = sorted(done.get() for _ in queues)  # by rank
        finally:  # a thread that limits its cores changes the default of new ones too
            torch.set_num_threads(torch.get_num_threads())
    for end in ends:
        if end.error is not None:
            end.error.add_note(f"raised on rank {end.rank} of {lengths[0]} devices")
            try:
                raise end.error
            finally:
                del end, ends  # or the error would keep alive itself and what it saw
    return [end.result for end in ends]


def run_on_device_0(fn: Callable, *args: Any) -> Any:
    """Call `fn(*args)` in the thread of device 0, as `run_on_devices` would; what it returns."""
    check_functions(fn=fn)
    return run_on_devices(lambda rank: fn(*args), [0])[0]


def rank_here() -> int | None:
    """The rank of the device whose thread this is; None in every other thread."""
    return getattr(_here, "rank", None)


def num_ranks_here() -> int | None:
    """How many ranks the call of `run_on_devices` has that this thread works for; None in every other thread."""
    return len(_here.meeting) if hasattr(_here, "meeting") else None


def all_gather_here(x: Any) -> list:
    """Every rank's `x`, in rank order: a meeting of all ranks of one `run_on_devices` call.

    To be called by the function that `run_on_devices` runs, on every rank and as often
    as on the others. Blocks until the last rank has come. The entries are the objects
    themselves, not copies: read them, and leave them as they are.

    Raises:
        RuntimeError: outside such a call; or on every rank that waits, as soon as one
            rank cannot come any more because its function has raised or returned. If it
            has raised, that is the error which `run_on_devices` reports.
    """
    if not hasattr(_here, "meeting"):
        raise RuntimeError("all_gather_here is for functions that run_on_devices calls: "
                           "this thread belongs to no device")
    return _here.meeting.gather(_here.rank, x)


def set_seed(seed: int) -> None:
    """Seed PyTorch, and make GPUs compute in full float32 and give the same bits on every run.

    A CPU does both anyway, for the same number of cores.
    """
    check_seeds(seed=seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.deterministic = True


def synchronize(devices: Sequence[torch.device]) -> None:
    """Block until all the work queued on `devices` is done; a CPU has no queue, so there is nothing to wait for."""
    check_devices(devices)
    for device in set(devices):
        if device.type == "cuda":
            torch.cuda.synchronize(device)


@cache
def cpu_name() -> str:
    """What the CPU calls itself, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _calls_of(rank: int) -> SimpleQueue:
    """Where the thread of this device, started if need be, takes its calls from."""
    if rank not in _calls:
        calls: SimpleQueue = SimpleQueue()
        threading.Thread(target=_serve, args=(rank, calls), name=f"device-{rank}", daemon=True).start()
        _calls[rank] = calls  # only now: without a thread nobody would serve it
    return _calls[rank]


def _serve(rank: int, calls: SimpleQueue) -> None:
    """The life of a device's thread."""
    _here.rank = rank
    while True:
        calls.get()()


def _modes_of_this_thread() -> list[Callable]:
    """Makers of the context managers that put a device's thread into the modes of this one."""
    modes: list[Callable] = [
        partial(torch.inference_mode, torch.is_inference_mode_enabled()),
        partial(torch.set_grad_enabled, torch.is_grad_enabled()),  # after inference_mode, which sets it too
        # off, also where the caller has it on: PyTorch's backward thread for a GPU may be the one that waits for these
        partial(torch.autograd.set_multithreading_enabled, False),
    ]
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            modes.append(partial(torch.autocast, kind, torch.get_autocast_dtype(kind),
                                 cache_enabled=torch.is_autocast_cache_enabled()))
    return modes


@dataclass
class _End:
    """How the call on one device ended."""

    rank: int
    result: Any = None
    error: BaseException | None = None

    def __lt__(self, other: _End) -> bool:
        return self.rank < other.rank


class _Absent(RuntimeError):
    """A rank was waited for in vain; `because` of what another one raised, and reports itself, or of nothing."""

    def __init__(self, message: str, because: object) -> None:
        super().__init__(message)
        self.because = because


class _Meeting:
    """What the ranks of one call have in common: where they wait for one another, and say how they have ended."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._news = threading.Condition()
        self._brought: dict[int, Any] = {}  # by rank, for the meeting that comes next
        self._gone: dict[int, type[BaseException] | None] = {}  # by rank: what it raised, None if it returned
        self._ends: SimpleQueue = SimpleQueue()

    def __len__(self) -> int:
        return self._num_ranks

    def gather(self, rank: int, x: Any) -> list:
        """What all ranks bring; blocks until the last one has come."""
        with self._news:
            brought = self._brought
            brought[rank] = x
            if len(brought) == len(self):
                self._brought = {}  # who is fast opens the next meeting while others still read this one
                self._news.notify_all()
            self._news.wait_for(lambda: len(brought) == len(self) or self._absent(brought))
            if len(brought) < len(self):
                absent, *_ = self._absent(brought)
                raised = self._gone[absent]
                how = f"raised {raised.__name__}" if raised else "returned"
                raise _Absent(f"rank {rank} waits in vain for rank {absent}, whose function has {how}",
                              self._gone if raised else None)
        return [brought[r] for r in range(len(self))]

    def _absent(self, brought: dict[int, Any]) -> list[int]:
        """The ranks that have ended and not come, the first one first."""
        return [rank for rank in self._gone if rank not in brought]

    def put(self, end: _End) -> None:
        """The last word of a rank; releases those that wait for it."""
        raised = None if end.error is None else type(end.error)  # the error itself would keep alive what it saw
        if self._is_consequence(end.error):
            end.error = None  # the rank that raised first reports what was wrong
        with self._news:
            self._gone[end.rank] = raised
            self._news.notify_all()
        self._ends.put(end)

    def get(self) -> _End:
        """One rank's last word, in the order in which they end; blocks until there is one."""
        return self._ends.get()

    def _is_consequence(self, error: BaseException | None) -> bool:
        """Whether the rank would not have raised if another one had not."""
        chain: list[BaseException] = []
        while error is not None and not any(error is one for one in chain):
            if isinstance(error, _Absent) and error.because is self._gone:
                return True
            chain.append(error)
            error = error.__cause__ or error.__context__
        return False


def _call(fn: Callable, same: dict, modes: Sequence[Callable], cores: int, done: _Meeting, rank: int,
          args: tuple) -> None:
    end = _End(rank)
    _here.meeting = done
    try:
        if torch.get_num_threads() != cores:
            torch.set_num_threads(cores)
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode())
            end.result = fn(*args, **same)
    except BaseException as error:
        end.error = error
    del _here.meeting
    done.put(end)
    del end  # an error remembers this frame
