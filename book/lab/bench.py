"""How fast is it here? Every row is a ratio, measured side by side in one run: `make bench`.

A row divides the reference's time by the time of the book's code, block by block: how many times as fast it is.
A block is several steps in a row. All cases are built several times, those of groups of processes in new processes.
`bench_cases`, `bench_single` and `bench_survival` hold what is timed, and `bench_report` turns the times into rows. The
page "How fast is it here?" says what the rows mean.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import torch

from bench_cases import (
    ALGORITHMS,
    ALONE,
    BATCH_SIZE,
    RESNET18,
    RESNET_BATCH_SIZE,
    SMALL,
    SMALL_BATCH_SIZE,
    WrongResult,
    measure,
)
from bench_report import GROUPS, Report, Row, Times, from_json, median_ratio, moved, ratio_row, table, to_json
from bench_single import dispatch_times, import_times, loader_times
from bench_survival import checkpoint_times, restart_times
from d2lpar.data import NUM_TRAIN, Batches, load_data_fashion_mnist
from d2lpar.devices import all_cores, cores_per_device
from d2lpar.launch import RankError, run_ranks
from d2lpar.timing import describe_machine, keep_freed_memory

NETS = {"lenet": "LeNet", "resnet": f"ResNet-18, batch {RESNET_BATCH_SIZE}",
        "resnet, batch 8": f"ResNet-18, batch {SMALL_BATCH_SIZE}"}
SIZES = {"large": f"{4 * RESNET18 / 1e6:.1f} MB", "small": f"{4 * SMALL / 1e3:.0f} kB"}
FULL = {2: ("large", "small", "lenet", "resnet", "resnet, batch 8"),
        4: ("large", "small", "lenet"), 8: ("large", "small")}
QUICK = {2: ("large", "small", "lenet")}  # parts for each number of devices
SINGLE: dict[str, tuple[tuple[str, str, str], str, str, float | None]] = {
    # by part: the row's group, ours, against what; the names of both in the times; and the limit
    "data": (("data", "an epoch of load_data_fashion_mnist", "torchvision in a DataLoader"), "ours", "torchvision",
             None),
    **{f"dispatch {k}": (("dispatch", f"run_on_devices of nothing, {k} devices", "ThreadPoolExecutor, one per device"),
                         "ours", "pools", None) for k in (2, 8)},
    "import": (("import", "import d2lpar", "import torch"), "d2lpar", "torch", 1.0),
    "checkpoint": (("survival", "an epoch of train_ddp.py with a checkpoint", "without one"), "saved", "bare", 1.0),
    "restart": (("survival", "from a killed rank to the next update", "from a start to the first"), "killed", "started",
                None)}


def bench(quick: bool = False) -> Report:
    """Measure everything, saying on stderr what: twenty minutes on two cores, two minutes if `quick`.

    Raises:
        RankError, WrongResult: if a case computes something wrong, so that its time would mean nothing.
    """
    start, (builds, repeats) = time.perf_counter(), (2, 3) if quick else (4, 4)
    keep_freed_memory()
    with redirect_stdout(StringIO()) as said:
        batches, _ = load_data_fashion_mnist(BATCH_SIZE, NUM_TRAIN)
    data, alone, groups = said.getvalue().strip(), [], {k: [] for k in (QUICK if quick else FULL)}
    with redirect_stdout(sys.stderr):
        for build in range(1, builds + 1):
            print(f"build {build} of {builds}")
            alone.append(single_times(batches, repeats, quick))
            for k, parts in (QUICK if quick else FULL).items():
                groups[k].append(group_times(k, parts, repeats, build))
    rows = [ratio_row(*names, [times[part] for times in alone], ours, reference, limit)
            for part, (names, ours, reference, limit) in SINGLE.items() if part in alone[0]]
    rows += [row for k, runs in groups.items() for row in group_rows(k, runs)]
    rows.sort(key=lambda row: GROUPS.index(row.group))
    return Report(describe_machine() | {"data": data}, builds, repeats, round(time.perf_counter() - start), rows)


def single_times(batches: Batches, repeats: int, quick: bool) -> dict[str, Times]:
    """The times of each part that needs no group of processes."""
    print("one process: data, dispatch, import, checkpoints" + ", killed ranks" * (not quick))
    return {"data": loader_times(batches, repeats), **{f"dispatch {k}": dispatch_times(k, repeats) for k in (2, 8)},
            "import": import_times(repeats), "checkpoint": checkpoint_times(repeats),
            **({} if quick else {"restart": restart_times(1)})}


def group_times(k: int, parts: Sequence[str], repeats: int, turn: int) -> tuple[str, dict[str, Times]]:
    """The backend of k new processes, and the times of the parts that they measure."""
    print(f"{k} processes: {', '.join(parts)}")
    with cores_per_device(all_cores()):  # the ranks may use the whole machine
        return run_ranks(measure, k, parts, repeats, all_cores(), turn, timeout_s=900)[0]


def group_rows(k: int, runs: Sequence[tuple[str, dict[str, Times]]]) -> list[Row]:
    """The rows of all parts that k processes measured, several times."""
    backend, parts = runs[0]
    rows = []
    for part in parts:
        times = [run[part] for _, run in runs]
        if part not in NETS:
            rows += allreduce_rows(k, part, backend, times)
        else:
            rows += step_rows(NETS[part], k, backend, times)
    return rows


def allreduce_rows(k: int, size: str, backend: str, runs: Sequence[Times]) -> list[Row]:
    """Each algorithm against the processes; at the large size the limit is to move the bytes once."""
    limit = median_ratio(runs, "one pass", "processes") if size == "large" else None
    return [ratio_row("allreduce", f"{name}, {k} devices, {SIZES[size]}", f"{backend}, {k} processes",
                      runs, name, "processes", limit) for name in ALGORITHMS]


def step_rows(net: str, k: int, backend: str, runs: Sequence[Times]) -> list[Row]:
    """A step of `net` in each way, against one device with its share and with all cores, and against PyTorch's way.

    The limit is what k processes reach that exchange nothing, each with its share of the minibatch.
    """
    gpus = torch.cuda.device_count() if backend == "nccl" else 0
    at_once = min(k, gpus or all_cores())  # devices that work at the same time
    library = f"DistributedDataParallel, {backend}, {k} processes"
    one = {"1 device": "1 device, its share"}
    if not gpus:
        one["1 device, all cores"] = f"1 device, all {all_cores()} cores"

    def row(what: str, against: str, ours: str, reference: str) -> Row:
        limit = median_ratio(runs, ALONE, reference) if reference in one else None
        return ratio_row("training step", what, against, runs, ours, reference, limit)

    rows = [ratio_row("training step", f"{net}, {k} processes, {ALONE}", one["1 device"], runs, ALONE, "1 device",
                      float(at_once))]
    for ours, what in (("k devices", f"{net}, {k} devices"), ("own buckets", f"OwnDDP, {net}, {k} processes")):
        if ours in runs[0]:
            rows += [row(what, against, ours, reference) for reference, against in one.items()]
            rows.append(row(what, library, ours, "processes"))
    if "own buckets" in runs[0]:
        rows += [row(f"OwnDDP, {net}, {k} processes", "tensor by tensor", "own buckets", "tensor by tensor"),
                 row(f"DDP, {net}, {k} processes", one["1 device"], "processes", "1 device")]
    if k == 2 and "plain loop" in runs[0]:
        rows.append(ratio_row("one replica", "train_batch_threads, 1 device", "a plain loop",
                              runs, "1 device", "plain loop", 1.0))
    return rows


def command(quick: bool, json_to: str | None, against: str | None = None) -> None:
    """Measure, and print the table, or, for "-", JSON; a file gets JSON, and the table is printed too.

    Then say which rows have moved since an older run, in the file `against`: their ranges do not overlap.
    """
    to_file = Path(json_to) if json_to not in (None, "-") else None
    before = from_json(Path(against).read_text("utf8")) if against else None
    try:
        report = bench(quick)
    except (RankError, WrongResult, TimeoutError) as problem:
        sys.exit(f"nothing was measured: {problem}")
    except KeyboardInterrupt:
        print("interrupted, nothing was stored", file=sys.stderr)
        sys.exit(130)
    if to_file:
        to_file.write_text(to_json(report), "utf8")
    if json_to == "-":
        print(to_json(report), end="")
    else:
        print(*(f"{name}: {value}" for name, value in report.machine.items()), "", table(report.rows), "", sep="\n")
        print(f"{report.builds} builds of {report.repeats} blocks per row, {report.seconds} s in all")
    if before:
        rows = moved(before, report)
        print(f"moved out of their ranges in {against}: {len(rows)} of {len(report.rows)} rows", *rows, sep="\n  ",
              file=sys.stderr)


if __name__ == "__main__":
    about = "measure how fast the book's code is here, as a table of ratios (twenty minutes on two cores)"
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="fewer rows and repeats (two minutes)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE",
                        help="write JSON into FILE too, or print it instead of the table")
    parser.add_argument("--against", metavar="FILE", help="say which rows have moved out of the ranges stored in FILE")
    args = parser.parse_args()
    command(args.quick, args.json, args.against)
