"""Devices, real and virtual, and a thread for each.

A page asks for k devices and gets k, whatever the machine has: k different GPUs if there are enough of them, and
*virtual devices* otherwise. A virtual device on a CPU is one core: its work runs in a thread of its own, which uses a
fixed share of the cores (one unless told otherwise), whether there is one such device or eight.
The chapter on loops over devices shows why a thread is needed at all.
"""

from __future__ import annotations

import os
import platform
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from d2lpar.checks import check_counts
from d2lpar.interrupts import uninterrupted

_all_cores = torch.get_num_threads()

_cores_per_device = 1
_calls: dict[int, SimpleQueue] = {}  # rank -> the calls its thread has still to make
_calls_lock = threading.Lock()
_here = threading.local()  # .rank: of the device whose thread this is; .meeting: of the call it works for


def _after_fork() -> None:
    """A forked child has none of the threads, and nothing in it would ever release the lock."""
    global _calls_lock, _here
    _calls_lock, _here = threading.Lock(), threading.local()
    _calls.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def try_devices(k: int = 1) -> list[torch.device]:
    """Return a list of `k` devices: different GPUs if there are `k`, otherwise virtual devices.

    Virtual devices are dealt in turn over the physical ones: `cuda:0, cuda:1, cuda:0, ...`, or `cpu` `k` times.
    A tensor does not know which virtual device it is on, so a replica is identified by its position in this list.

    Raises:
        ValueError: if `k` is not a whole number of at least 1.
    """
    check_counts(the_number_of_devices=k)
    gpus = torch.cuda.device_count()
    return [torch.device("cuda", rank % gpus) if gpus else torch.device("cpu") for rank in range(k)]


def describe_devices(devices: Sequence[torch.device], shares: bool = True) -> str:
    """One readable line: what each of `devices` is and, if `shares`, its share of the cores."""
    if not devices:
        return "no devices"
    places = Counter(devices)
    parts = []
    for device, count in places.items():
        if device.type == "cpu":
            share = f"{_cores_per_device} of " * shares + f"{all_cores()} cores" + " each" * (shares and count > 1)
            parts.append(f"{count} virtual device{'s' * (count > 1)} on {cpu_name()}, {share}")
        else:
            name = f"{device} ({torch.cuda.get_device_name(device)})"
            parts.append(name if count == 1 else f"{count} virtual devices on {name}")
    return f"[{', '.join(map(str, devices))}]: " + ", ".join(parts)


def all_cores() -> int:
    """How many cores PyTorch uses for one operation unless limited; in a rank process, as many as its caller has."""
    return _all_cores


def set_all_cores(cores: int) -> None:
    """Tell a rank process how many cores its caller has: OMP_NUM_THREADS is 1 while a rank imports PyTorch."""
    global _all_cores
    _all_cores = cores


@contextmanager
def cores_per_device(cores: int) -> Generator[None]:
    """Within this block a virtual device on a CPU has `cores` cores instead of one, for every thread of the program.

    The thread that enters the block has as many, so that one device with one core has one core for its update, too.
    """
    global _cores_per_device
    before, _cores_per_device = _cores_per_device, cores
    threads = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        yield
    finally:
        _cores_per_device = before
        torch.set_num_threads(threads)


def device_cores() -> int:
    """How many cores a virtual device on a CPU currently has; see `cores_per_device`."""
    return _cores_per_device


def run_on_devices(fn: Callable, *columns: Sequence, **same: Any) -> list:
    """Call `fn(columns[0][r], columns[1][r], ..., **same)` for all ranks r at once.

    Each device has a thread of its own, kept between calls. The thread gets the caller's
    grad mode, inference mode, autocast and default device, which PyTorch keeps per
    thread, and its share of the cores. A backward pass that starts there is computed
    there, even on a GPU. Blocks until the last rank has finished, even when interrupted:
    an interrupt is raised only when all ranks are done, so that all have done the same
    (but a third interrupt is obeyed at once).

    Args:
        columns: one or more lists of the same length, the number of devices.
        same: arguments that are the same for all ranks.

    Returns:
        The results in rank order.

    Raises:
        ValueError: if the lists differ in length, or there are none.
        Exception: whatever `fn` raised on the lowest failing rank, with a note that
            names the rank. By then all the other ranks have finished.
    """
    lengths = [len(column) for column in columns]
    if not lengths or len(set(lengths)) > 1 or lengths[0] == 0:
        raise ValueError(f"each device needs one entry per list, got lengths {lengths}")
    if hasattr(_here, "rank"):
        raise RuntimeError(
            f"run_on_devices was called from device {_here.rank}'s own thread and would deadlock")
    meeting = _Meeting(lengths[0])
    call = partial(_call, meeting, fn, same, _modes_of_this_thread(), _cores_per_device)
    with uninterrupted():
        try:
            with _calls_lock:  # two callers get the same order on every rank
                queues = [_calls_of(rank) for rank in range(len(meeting))]  # all threads exist before any begins
                for rank, args in enumerate(zip(*columns)):
                    queues[rank].put(partial(call, rank, args))
            meeting.wait_until_all_have_ended()
        finally:  # a thread that limits its cores changes the default for new threads, too
            torch.set_num_threads(torch.get_num_threads())
    if meeting.errors:
        # an error of a rank that waited in vain only says that a different rank failed, so it comes last
        _, rank = min((_waited_in_vain(error), rank) for rank, error in meeting.errors.items())
        error = meeting.errors[rank]
        error.add_note(f"raised on rank {rank} of {len(meeting)} devices")
        try:
            raise error
        finally:
            meeting.errors.clear()  # an error remembers this frame, and would keep itself alive
            del error
    return [meeting.results[rank] for rank in range(len(meeting))]


def run_on_device_0(fn: Callable, *args: Any) -> Any:
    """Call `fn(*args)` in the thread of device 0, as `run_on_devices` would, and return its result."""
    return run_on_devices(lambda rank: fn(*args), [0])[0]


def rank_here() -> int | None:
    """The rank of the device whose thread this is; None in every other thread."""
    return getattr(_here, "rank", None)


def num_ranks_here() -> int | None:
    """The number of ranks in the `run_on_devices` call that this thread works for; None in every other thread."""
    return len(_here.meeting) if hasattr(_here, "meeting") else None


def all_gather_here(x: Any) -> list:
    """Every rank's `x`, in rank order: a collective of all ranks of one `run_on_devices` call.

    The function that `run_on_devices` runs must call it equally often on every rank. It
    blocks until the last rank has called it. The entries are the objects themselves, not
    copies: read them, but do not change them.

    Raises:
        RuntimeError: outside such a call; or on every waiting rank, as soon as one rank
            can no longer call it because its function has raised or returned. If that
            function raised, `run_on_devices` reports its error.
    """
    if not hasattr(_here, "meeting"):
        raise RuntimeError("all_gather_here is for functions that run_on_devices calls: "
                           "this thread does not belong to a device")
    return _here.meeting.all_gather(_here.rank, x)


def make_gpus_reproducible() -> None:
    """Make GPUs compute in full float32, and let cuDNN use only algorithms that give the same bits in every run.

    Both cost speed. A CPU computes in full float32 anyway, and gives the same bits as long as the number of cores is
    the same.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.deterministic = True


def synchronize(devices: Sequence[torch.device]) -> None:
    """Block until all the work queued on `devices` is done. A CPU has no queue, so there is nothing to wait for."""
    for device in set(devices):
        if device.type == "cuda":
            torch.cuda.synchronize(device)


@cache
def cpu_name() -> str:
    """The model name of the CPU, as far as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _calls_of(rank: int) -> SimpleQueue:
    """The queue of calls for this device's thread, which is started if need be.

    Why not one `ThreadPoolExecutor(1)` per device? A call took a third longer, a thread that cannot start would be
    noticed only after other ranks have begun, and a program could not end while a device is at work.
    """
    if rank not in _calls:
        calls: SimpleQueue = SimpleQueue()
        threading.Thread(target=_serve, args=(rank, calls), name=f"device-{rank}", daemon=True).start()
        _calls[rank] = calls  # only now: without a thread the queue would never be served
    return _calls[rank]


def _serve(rank: int, calls: SimpleQueue) -> None:
    """What a device's thread does: make one call after the other."""
    _here.rank = rank
    while True:
        calls.get()()


def _modes_of_this_thread() -> list[Callable]:
    """Functions that create context managers, to put a device's thread into the modes of this thread."""
    modes: list[Callable] = [
        partial(torch.inference_mode, torch.is_inference_mode_enabled()),
        partial(torch.set_grad_enabled, torch.is_grad_enabled()),  # after inference_mode, which sets it too
        # off, even if the caller has it on: PyTorch's backward thread for a GPU may be the one that waits for these
        partial(torch.autograd.set_multithreading_enabled, False),
    ]
    if (default := torch.get_default_device()).type != "cpu":
        modes.append(partial(torch.device, default))
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            modes.append(partial(torch.autocast, kind, torch.get_autocast_dtype(kind),
                                 cache_enabled=torch.is_autocast_cache_enabled()))
    return modes


class _Absent(RuntimeError):
    """A rank waited in vain for one that had already ended."""


def _waited_in_vain(error: BaseException) -> bool:
    """Whether this error, or an error that caused it, says that a different rank did not come."""
    seen: list[BaseException] = []  # `raise error from error` makes a circle
    while not isinstance(error, _Absent):
        seen.append(error)
        before = error.__cause__ or error.__context__
        if before is None or any(before is one for one in seen):
            return False
        error = before
    return True


class _Meeting:
    """Where the ranks of one call wait for one another, and how each of them ended."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._changed = threading.Condition()
        self._brought: dict[int, Any] = {}  # by rank, for the next all_gather
        self._ended: dict[int, str] = {}  # by rank, in the order in which they ended: how it ended
        self.results: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}

    def __len__(self) -> int:
        return self._num_ranks

    def all_gather(self, rank: int, x: Any) -> list:
        """The values of all ranks, in rank order; blocks until the last rank has brought its own."""
        with self._changed:
            brought = self._brought
            brought[rank] = x
            if len(brought) == len(self):
                self._brought = {}  # a fast rank starts the next round while others still read this one
                self._changed.notify_all()
            self._changed.wait_for(lambda: len(brought) == len(self) or not self._ended.keys() <= brought.keys())
            if len(brought) < len(self):
                absent = next(r for r in self._ended if r not in brought)
                raise _Absent(f"rank {rank} waits in vain for rank {absent}, whose function has {self._ended[absent]}")
        return [brought[r] for r in range(len(self))]

    def end(self, rank: int, how: str) -> None:
        """Record that rank `rank` has ended, and how."""
        with self._changed:
            self._ended[rank] = how
            self._changed.notify_all()

    def wait_until_all_have_ended(self) -> None:
        """Block until every rank has ended."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._ended) == len(self))


def _call(meeting: _Meeting, fn: Callable, same: dict, modes: Sequence[Callable], cores: int, rank: int,
          args: tuple) -> None:
    """What the thread of a device does in one call of `run_on_devices`."""
    _here.meeting = meeting
    try:
        if torch.get_num_threads() != cores:
            torch.set_num_threads(cores)
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode())
            meeting.results[rank] = fn(*args, **same)
        how = "returned"
    except BaseException as error:
        meeting.errors[rank] = error
        how = f"raised {type(error).__name__}"
    del _here.meeting
    meeting.end(rank, how)
