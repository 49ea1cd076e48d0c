"""`python -m d2lpar bench`: how fast is it here? Every row is a ratio, measured side by side in one run.

A row divides the seconds of what it is compared with by the seconds of ours, repeat by repeat: how many times as fast
ours is. What the processes run is in `d2lpar.ranks`, and what the rows mean is on the page "How fast is it here?".
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import FashionMNIST, VisionDataset
from torchvision.transforms import ToTensor
from tqdm import tqdm

from d2lpar.data import NUM_TRAIN, Batches, DataError, load_data_fashion_mnist
from d2lpar.devices import ALL_CORES, cores_per_device
from d2lpar.launch import RankError, run_ranks
from d2lpar.ranks import ALGORITHMS, BATCH_SIZE, RESNET18, RESNET_REPEATS, SMALL, Times, WrongResult, measure
from d2lpar.timing import describe_machine, times_interleaved

GROUPS = ("allreduce", "bandwidth", "training step", "one replica", "data")
NETS = {"lenet": "LeNet", "resnet": f"ResNet-18 ({RESNET_REPEATS} repeats)"}
SIZES = {"large": f"{4 * RESNET18 / 1e6:.1f} MB", "small": f"{4 * SMALL / 1e3:.0f} kB"}


class Row(NamedTuple):
    """How many times as fast `what` is as `against`: the median of the repeats, their middle half, and the limit."""

    group: str
    what: str
    against: str
    ratio: float
    low: float
    high: float
    limit: float | None = None


class Report(NamedTuple):
    """One run: on which machine and data, how often each case was timed, how long it took, and the rows."""

    machine: dict[str, str]
    repeats: int
    seconds: int
    rows: list[Row]


def bench(quick: bool = False) -> Report:
    """Measure everything, with a bar on stderr: two minutes on two cores, a third of a minute if `quick`.

    Raises:
        DataError: before anything is measured, if the data cannot be used.
        RankError, WrongResult: if a case computes something wrong, so that its time would mean nothing.
    """
    start, repeats = time.perf_counter(), 5 if quick else 11
    parts = {2: ("large", "small", "lenet")} if quick else {
        2: ("large", "small", "lenet", "resnet"), 4: ("large", "small", "lenet"), 8: ("large", "small")}
    with (redirect_stdout(StringIO()) as said,
          tqdm(total=1 + sum(parts), bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}", disable=None) as bar):
        bar.set_description("data")
        batches, _ = load_data_fashion_mnist(BATCH_SIZE, NUM_TRAIN)
        data = said.getvalue().partition(";")[0].strip()
        rows = [ratio_row("data", "an epoch of load_data_fashion_mnist", "torchvision in a DataLoader",
                          loader_times(batches, repeats), "ours", "torchvision")]
        bar.update()
        for k, names in parts.items():
            bar.set_description(f"{k} processes")
            with _progress(bar, k) as file, cores_per_device(ALL_CORES):  # the ranks may use the whole machine
                backend, times = run_ranks(measure, k, names, repeats, ALL_CORES, file, timeout_s=900)[0]
            for name in names:
                if name in NETS:
                    rows += step_rows(NETS[name], k, backend, times[name])
                else:
                    rows += allreduce_rows(k, name, backend, times[name])
    rows.sort(key=lambda row: GROUPS.index(row.group))
    return Report(describe_machine() | {"data": data}, repeats, round(time.perf_counter() - start), rows)


def loader_times(batches: Batches, repeats: int) -> Times:
    """Seconds of an epoch of our iterator, and of the same images from torchvision in a DataLoader of one process.

    Raises:
        WrongResult: if the two give different batches.
    """
    theirs = _Torchvision(batches)
    in_order = Batches(batches.images, batches.labels, BATCH_SIZE)
    for (X, y), (their_X, their_y) in zip(in_order, DataLoader(theirs, BATCH_SIZE), strict=True):
        if not (torch.equal(X, their_X) and torch.equal(y, their_y)):
            raise WrongResult("our iterator and torchvision give different images")
    cases = {"ours": batches, "torchvision": DataLoader(theirs, BATCH_SIZE, shuffle=True)}
    return times_interleaved({name: lambda loader=loader: [None for _ in loader] for name, loader in cases.items()},
                             repeats)


class _Torchvision(FashionMNIST):
    """Torchvision's own data set, around images that are in memory already."""

    def __init__(self, batches: Batches) -> None:
        VisionDataset.__init__(self, transform=ToTensor())
        self.data, self.targets = batches.images[:, 0], batches.labels.long()


def allreduce_rows(k: int, size: str, backend: str, times: Times) -> list[Row]:
    """Each algorithm against the processes; at the large size also against moving the bytes, the limit of both."""
    limit = statistics.median(_ratios(times, "one pass", "processes")) if size == "large" else None
    rows = [ratio_row("allreduce", f"{name}, {k} devices, {SIZES[size]}", f"{backend}, {k} processes",
                      times, name, "processes", limit) for name in ALGORITHMS]
    if size == "large":
        rows += [ratio_row("bandwidth", f"{name}, {k} devices, {SIZES[size]}", "moving the bytes once",
                           times, name, "one pass", 1.0) for name in ALGORITHMS]
    return rows


def step_rows(net: str, k: int, backend: str, times: Times) -> list[Row]:
    """A step of `net` on k devices against one device, with its share and with all cores, and against PyTorch's way."""
    gpus = torch.cuda.device_count()
    at_once = min(k, gpus or ALL_CORES)  # devices that work at the same time
    ours = (times, "k devices")
    what = f"{net}, {k} devices"
    rows = [ratio_row("training step", what, "1 device, its share", *ours, "1 device", float(at_once))]
    if not gpus:
        rows.append(ratio_row("training step", what, f"1 device, all {ALL_CORES} cores",
                              *ours, "1 device, all cores", at_once / ALL_CORES))
    rows.append(ratio_row("training step", what, f"DistributedDataParallel, {backend}, {k} processes",
                          *ours, "processes"))
    if k == 2 and "plain loop" in times:
        rows.append(ratio_row("one replica", "train_batch, 1 device", "a plain loop", times, "1 device", "plain loop",
                              1.0))
    return rows


def ratio_row(group: str, what: str, against: str, times: Times, ours: str, reference: str,
              limit: float | None = None) -> Row:
    """The row of two cases of one interleaved run: the quartiles of the repeats' ratios."""
    low, ratio, high = statistics.quantiles(_ratios(times, ours, reference), n=4, method="inclusive")
    return Row(group, what, against, ratio, low, high, limit)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table that is also readable as it is; rows of a single group do without its name."""
    lines = [("group", "ours", "against", "times as fast", "middle half", "limit")]
    lines += [(row.group, row.what, row.against, _short(row.ratio), f"{_short(row.low)} to {_short(row.high)}",
               _short(row.limit)) for row in rows]
    if len({row.group for row in rows}) == 1:
        lines = [line[1:] for line in lines]
    numbers = len(lines[0]) - 3  # from this column on
    widths = [max(map(len, column)) for column in zip(*lines)]
    lines.insert(1, tuple("-" * (width - 1) + (":" if i >= numbers else "-") for i, width in enumerate(widths)))
    return "\n".join("| " + " | ".join(cell.rjust(width) if i >= numbers else cell.ljust(width)
                                       for i, (cell, width) in enumerate(zip(line, widths))) + " |" for line in lines)


def to_json(report: Report) -> str:
    """The report as JSON text."""
    rows = [row._asdict() for row in report.rows]
    return json.dumps(report._replace(rows=rows)._asdict(), indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Report:
    """The report that `to_json` wrote."""
    report = Report(**json.loads(text))
    return report._replace(rows=[Row(**row) for row in report.rows])


def command(quick: bool, json_to: str | None) -> None:
    """`python -m d2lpar bench`: measure, and print the table, or write JSON to a file or, for "-", to stdout."""
    to_file = Path(json_to) if json_to not in (None, "-") else None
    if to_file:
        _check_writable(to_file)
    try:
        report = bench(quick)
    except (DataError, RankError, WrongResult, TimeoutError) as problem:
        sys.exit(f"nothing was measured: {problem}")
    except KeyboardInterrupt:
        print("interrupted, nothing was stored", file=sys.stderr)
        sys.exit(130)
    if to_file:
        to_file.write_text(to_json(report), "utf8")
    elif json_to:
        print(to_json(report), end="")
    else:
        print(*(f"{name}: {value}" for name, value in report.machine.items()), "", table(report.rows), "", sep="\n")
        print(f"{report.repeats} repeats per row, {report.seconds} s in all")


def _ratios(times: Times, ours: str, reference: str) -> list[float]:
    return [theirs_s / ours_s for theirs_s, ours_s in zip(times[reference], times[ours], strict=True)]


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f}"


@contextmanager
def _progress(bar: tqdm, weight: float) -> Iterator[Path]:
    """A file for the fraction done; while the block runs, the bar follows it up to `weight` more."""
    start, stop = bar.n, threading.Event()
    with TemporaryDirectory(prefix="d2lpar-bench-") as folder:
        file = Path(folder, "fraction")

        def follow() -> None:
            while not stop.wait(0.2):
                text = file.read_text() if file.exists() else ""
                bar.n = start + weight * float(text or 0)
                bar.refresh()

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield file
        finally:
            stop.set()
            follower.join()
    bar.n = start + weight
    bar.refresh()


def _check_writable(file: Path) -> None:
    """End the program now, not in two minutes, if nothing can be written there."""
    is_new = not file.exists()
    try:
        file.open("a").close()
    except OSError as problem:
        sys.exit(f"{file} cannot be written: {problem.strerror}")
    if is_new:
        file.unlink()
