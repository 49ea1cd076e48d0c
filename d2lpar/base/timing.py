"""Measuring: several variants side by side in one run, on which machine, and what ran when in one step."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import NamedTuple, TypeVar

import torch

from d2lpar.base.devices import ALL_CORES, cpu_name, synchronize

Name = TypeVar("Name")  # of a case: a string, or a tuple of an algorithm and its size


def time_interleaved(cases: Mapping[Name, Callable[[], object]], repeats: int = 7, warmup: int = 2,
                     devices: Sequence[torch.device] = ()) -> dict[Name, float]:
    """Median seconds of each case: all cases once, in turn, and so on, so that a slow moment hits every case alike.

    Args:
        cases: what to time, by name; each is called without arguments.
        repeats: timed rounds; `warmup` untimed ones go before them.
        devices: devices whose queued work belongs to the time.
    """
    times = time_each_repeat(cases, repeats, warmup, devices)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def time_each_repeat(cases: Mapping[Name, Callable[[], object]], repeats: int = 7, warmup: int = 2,
                     devices: Sequence[torch.device] = (),
                     before: Callable[[], object] = lambda: None) -> dict[Name, list[float]]:
    """As `time_interleaved`, but the seconds of every timed repeat, so that repeats can be compared one by one.

    `before` is called before each call of a case, untimed; several processes that time the same cases meet there.
    """
    times: dict[Name, list[float]] = {name: [] for name in cases}
    for round_ in range(warmup + repeats):
        for name, case in cases.items():
            before()
            synchronize(devices)
            start = time.perf_counter()
            case()
            synchronize(devices)
            if round_ >= warmup:
                times[name].append(time.perf_counter() - start)
    return times


def describe_machine() -> dict[str, str]:
    """What belongs beside a measured number, by name; nothing that changes from run to run, no name and no path."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = f"{platform.system()} {platform.release()}"
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "processor": f"{cpu_name()}, {ALL_CORES} cores",
        "GPUs": ", ".join(gpus) or "none",
        "memory": _memory(),
        "system": system,
        "Python": platform.python_version(),
        "torch": version("torch"),
    }


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB"
    except (AttributeError, ValueError, OSError):  # not on Windows
        return "unknown"


class Span(NamedTuple):
    """What one rank did from `start_s` to `end_s`, in seconds since the stopwatch was made."""

    rank: int
    what: str
    start_s: float
    end_s: float


class Stopwatch:
    """Records spans: `with watch(rank, "forward", device): ...`, from any thread.

    On a GPU the times are those at which the device itself began and ended what the block queued.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        synchronize(devices)
        self._host: list[Span] = []
        self._queued: list[tuple[int, str, torch.cuda.Event, torch.cuda.Event, torch.cuda.Event]] = []
        self._zero = time.perf_counter()
        self._device_zero = {d: self._mark(d) for d in set(devices) if d.type == "cuda"}

    @contextmanager
    def __call__(self, rank: int, what: str, device: torch.device) -> Generator[None]:
        if device.type == "cuda":
            begin = self._mark(device)
            yield
            self._queued.append((rank, what, self._device_zero[device], begin, self._mark(device)))
        else:
            start = time.perf_counter() - self._zero
            yield
            self._host.append(Span(rank, what, start, time.perf_counter() - self._zero))

    @property
    def spans(self) -> list[Span]:
        """All spans so far, in order of their start; waits for the devices."""
        synchronize(list(self._device_zero))
        queued = [Span(rank, what, zero.elapsed_time(begin) / 1e3, zero.elapsed_time(end) / 1e3)
                  for rank, what, zero, begin, end in self._queued]
        return sorted(self._host + queued, key=lambda span: span.start_s)

    @staticmethod
    def _mark(device: torch.device) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event
