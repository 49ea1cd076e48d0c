"""Measurements: variants timed side by side, the machine, what ran when within a step, and how a training run goes.

A `History` has the clock, the progress bar, the line per epoch and the last line of a training run, so that a training
loop contains nothing but training.
"""

from __future__ import annotations

import ctypes
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import NamedTuple, TypeVar

import torch
from tqdm import tqdm

from d2lpar.devices import all_cores, cpu_name, describe_devices, synchronize
from d2lpar.interrupts import uninterrupted

Name = TypeVar("Name")  # the name of a case: a string, or a tuple of an algorithm and its size


def time_interleaved(cases: Mapping[Name, Callable[[], object]], repeats: int = 7, warmup: int = 2,
                     devices: Sequence[torch.device] = ()) -> dict[Name, float]:
    """Median seconds of each case. The cases take turns, so that a slow moment affects all of them alike.

    Args:
        cases: what to time, by name; each is called without arguments.
        repeats: timed rounds; `warmup` untimed rounds come first.
        devices: devices whose queued work is included in the time.
    """
    times = time_each_repeat(cases, repeats, warmup, devices)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def time_each_repeat(cases: Mapping[Name, Callable[[], object]], repeats: int = 7, warmup: int = 2,
                     devices: Sequence[torch.device] = (),
                     before: Callable[[], object] = lambda: None) -> dict[Name, list[float]]:
    """Like `time_interleaved`, but with the seconds of every repeat, so that repeats can be compared one by one.

    `before` is called, untimed, before each call of a case. In it, processes that time the same cases can wait for
    one another.
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


def keep_freed_memory() -> None:
    """Have glibc, the C library of most Linux systems, keep freed memory for the next tensor; elsewhere, do nothing.

    Without it, glibc may return memory to the operating system after one case and not after another, and the time for
    getting the pages back in every step is then taken for a difference between the two.

    It cannot be undone. Call it before any other thread exists: an older one, or one that inherits its heap, may still
    get new pages for a tensor of more than 64 MB.

    Source: mallopt(3), with the settings M_MMAP_MAX, M_TRIM_THRESHOLD, M_ARENA_MAX and M_TOP_PAD.
    """
    if sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)  # other C libraries have none
        # No block has pages of its own, the end of the heap is not returned, and no thread gets a heap of its own. The
        # last setting, for older threads, is as large as their heaps, or an empty heap would be returned as a whole.
        for option, value in ((-4, 0), (-1, -1), (-8, 1), (-2, 2**26)):
            if not set_option(option, value):
                break


def describe_machine() -> dict[str, str]:
    """The facts to report with a measurement, by name: nothing that changes between runs, no host name, no path."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = f"{platform.system()} {platform.release()}"
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "processor": f"{cpu_name()}, {all_cores()} cores",
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
    """What one rank did from `start_s` to `end_s`, in seconds since the stopwatch was created."""

    rank: int
    what: str
    start_s: float
    end_s: float


class Stopwatch:
    """Records spans: `with watch(rank, "forward", device): ...`, from any thread.

    On a GPU, a span starts and ends when the device starts and finishes the work that the block queued.
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
        """All spans so far, in the order in which they started; waits for the devices."""
        synchronize(list(self._device_zero))
        queued = [Span(rank, what, zero.elapsed_time(begin) / 1e3, zero.elapsed_time(end) / 1e3)
                  for rank, what, zero, begin, end in self._queued]
        return sorted(self._host + queued, key=lambda span: span.start_s)

    @staticmethod
    def _mark(device: torch.device) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event


Batch = TypeVar("Batch")


class History:
    """Seconds and test accuracy of each epoch, in `epoch_s` and `accuracies`, printed after each epoch.

    Inside its `with` block, `clocked` iterates over the batches of an epoch, and `add` ends the epoch. If the block
    ends without an error, a last line is printed.

    Args:
        num_epochs: how many epochs there will be, at least 1.
        num_batches: batches per epoch, at least 1.
        devices: the clock waits for their work, and the last line names them.
    """

    def __init__(self, num_epochs: int, num_batches: int, devices: Sequence[torch.device]) -> None:
        self.epoch_s: list[float] = []
        self.accuracies: list[float] = []
        self._num_epochs, self._num_batches, self._devices = num_epochs, num_batches, devices
        self._steps: Generator = (_ for _ in ())

    def __enter__(self) -> History:
        self._bar = tqdm(total=self._num_epochs * self._num_batches, unit="batch", file=sys.stdout, leave=False,
                         disable=not (in_notebook() or sys.stdout.isatty()), ncols=70)
        return self

    def clocked(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield `batches` while the clock runs and the bar advances; an interrupt waits until the step ends.

        After a `break`, an interrupt waits for the next epoch or for the end of the `with` block.
        """
        self._steps.close()  # the steps of an epoch that a `break` ended
        self._steps = self._go_through(batches)
        return self._steps

    def _go_through(self, batches: Iterable[Batch]) -> Generator[Batch]:
        start = time.perf_counter()
        for batch in batches:
            with uninterrupted():
                yield batch
            self._bar.update()
        synchronize(self._devices)
        self.epoch_s.append(time.perf_counter() - start)

    def add(self, accuracy: float) -> None:
        """End the epoch and print its line.

        Raises:
            RuntimeError: if the loop over `clocked` ended before the epoch did.
        """
        if len(self.epoch_s) == len(self.accuracies):
            raise RuntimeError("the time of this epoch is unknown: the loop over clocked() ended early")
        self.accuracies.append(accuracy)
        line = f"epoch {len(self.accuracies):2}: {self.epoch_s[-1]:.2f} s, test acc {accuracy:.3f}"
        tqdm.write(line, file=sys.stdout)

    def __exit__(self, kind: type | None, *error: object) -> None:
        self._bar.close()
        self._steps.close()  # after a failed step, the traceback keeps it alive, and interrupts would wait
        if kind is None and self.accuracies:
            mean_s = sum(self.epoch_s) / len(self.epoch_s)
            print(f"test acc {self.accuracies[-1]:.2f}, {mean_s:.1f} s/epoch")
            print(f"on {describe_devices(self._devices, shares=False)}")


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel, where figures and bars can change after they are shown."""
    return "IPython" in sys.modules and hasattr(sys.modules["IPython"].get_ipython(), "kernel")
