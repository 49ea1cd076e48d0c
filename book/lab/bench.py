"""How fast is it here? Every row is a ratio, measured side by side in one run: `make bench`.

A row divides the reference's time by the time of the book's code, repeat by repeat: how many times as fast it is.
`bench_cases`, `bench_single` and `bench_survival` hold what is timed, and `bench_report` turns the times into rows. The
page "How fast is it here?" says what the rows mean.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import torch

from bench_cases import (
    ALGORITHMS,
    BATCH_SIZE,
    RESNET18,
    RESNET_BATCH_SIZE,
    RESNET_REPEATS,
    SMALL,
    SMALL_BATCH_SIZE,
    WrongResult,
    measure,
)
from bench_report import GROUPS, Report, Row, Times, ratio_row, ratios, table, to_json
from bench_single import dispatch_times, import_times, loader_times
from bench_survival import checkpoint_times, restart_times
from d2lpar.data import NUM_TRAIN, load_data_fashion_mnist
from d2lpar.devices import all_cores, cores_per_device
from d2lpar.launch import RankError, run_ranks
from d2lpar.timing import describe_machine

NETS = {"lenet": "LeNet", "resnet": f"ResNet-18 ({RESNET_REPEATS} repeats)"}
BETWEEN = {part: f"ResNet-18, batch {size}" for part, size in
           (("resnet", RESNET_BATCH_SIZE), ("resnet, batch 8", SMALL_BATCH_SIZE))}
SIZES = {"large": f"{4 * RESNET18 / 1e6:.1f} MB", "small": f"{4 * SMALL / 1e3:.0f} kB"}
FULL = {2: ("large", "small", "lenet", "resnet", "resnet, batch 8"),
        4: ("large", "small", "lenet"), 8: ("large", "small")}
QUICK = {2: ("large", "small", "lenet")}  # parts for each number of devices


def bench(quick: bool = False) -> Report:
    """Measure everything, saying on stderr what: five minutes on two cores, half a minute if `quick`.

    Raises:
        RankError, WrongResult: if a case computes something wrong, so that its time would mean nothing.
    """
    start, repeats = time.perf_counter(), 5 if quick else 11
    with redirect_stdout(StringIO()) as said:
        batches, _ = load_data_fashion_mnist(BATCH_SIZE, NUM_TRAIN)
    data = said.getvalue().strip()
    with redirect_stdout(sys.stderr):
        print("one process: data, dispatch, import")
        rows = [ratio_row("data", "an epoch of load_data_fashion_mnist", "torchvision in a DataLoader",
                          loader_times(batches, repeats), "ours", "torchvision")]
        rows += [ratio_row("dispatch", f"run_on_devices of nothing, {k} devices", "ThreadPoolExecutor, one per device",
                           dispatch_times(k, repeats), "ours", "pools") for k in (2, 8)]
        rows.append(ratio_row("import", "import d2lpar", "import torch", import_times(5), "d2lpar", "torch", 1.0))
        for k, parts in (QUICK if quick else FULL).items():
            rows += group_rows(k, parts, repeats)
        print("a run that survives: checkpoints" + ", killed ranks" * (not quick))
        rows.append(ratio_row("survival", "an epoch of train_ddp.py with a checkpoint", "without one",
                              checkpoint_times(repeats), "saved", "bare", 1.0))
        if not quick:
            rows.append(ratio_row("survival", "from a killed rank to the next update", "from a start to the first",
                                  restart_times(5), "killed", "started"))
    rows.sort(key=lambda row: GROUPS.index(row.group))
    return Report(describe_machine() | {"data": data}, repeats, round(time.perf_counter() - start), rows)


def group_rows(k: int, parts: Sequence[str], repeats: int) -> list[Row]:
    """The rows of some parts that k processes measure, saying which."""
    print(f"{k} processes: {', '.join(parts)}")
    with cores_per_device(all_cores()):  # the ranks may use the whole machine
        backend, times = run_ranks(measure, k, parts, repeats, all_cores(), timeout_s=900)[0]
    rows = []
    for part in parts:
        if part in NETS:
            rows += step_rows(NETS[part], k, backend, times[part])
        if part in BETWEEN:
            rows += ddp_rows(BETWEEN[part], k, backend, times[part])
        elif part not in NETS:
            rows += allreduce_rows(k, part, backend, times[part])
    return rows


def allreduce_rows(k: int, size: str, backend: str, times: Times) -> list[Row]:
    """Each algorithm against the processes; at the large size also against moving the bytes, the limit of both."""
    limit = statistics.median(ratios(times, "one pass", "processes")) if size == "large" else None
    rows = [ratio_row("allreduce", f"{name}, {k} devices, {SIZES[size]}", f"{backend}, {k} processes",
                      times, name, "processes", limit) for name in ALGORITHMS]
    if size == "large":
        rows += [ratio_row("bandwidth", f"{name}, {k} devices, {SIZES[size]}", "moving the bytes once",
                           times, name, "one pass", 1.0) for name in ALGORITHMS]
    return rows


def step_rows(net: str, k: int, backend: str, times: Times) -> list[Row]:
    """A step of `net` on k devices against one device, with its share and with all cores, and against PyTorch's way."""
    gpus = torch.cuda.device_count() if backend == "nccl" else 0
    at_once = min(k, gpus or all_cores())  # devices that work at the same time
    ours = (times, "k devices")
    what = f"{net}, {k} devices"
    rows = [ratio_row("training step", what, "1 device, its share", *ours, "1 device", float(at_once))]
    if not gpus:
        rows.append(ratio_row("training step", what, f"1 device, all {all_cores()} cores",
                              *ours, "1 device, all cores", at_once / all_cores()))
    rows.append(ratio_row("training step", what, f"DistributedDataParallel, {backend}, {k} processes",
                          *ours, "processes"))
    if k == 2 and "plain loop" in times:
        rows.append(ratio_row("one replica", "train_batch_threads, 1 device", "a plain loop",
                              times, "1 device", "plain loop", 1.0))
    return rows


def ddp_rows(net: str, k: int, backend: str, times: Times) -> list[Row]:
    """A step with our own buckets between processes against PyTorch's, and against doing without."""
    gpus = torch.cuda.device_count() if backend == "nccl" else 0
    at_once = min(k, gpus or all_cores())
    library = f"DistributedDataParallel, {backend}, {k} processes"
    against = {"1 device": ("1 device, its share", float(at_once)),
               "tensor by tensor": ("tensor by tensor", None), "processes": (library, None)}
    if not gpus:
        against["1 device, all cores"] = (f"1 device, all {all_cores()} cores", at_once / all_cores())
    rows = [ratio_row("training step", f"OwnDDP, {net}, {k} processes", other, times, "own buckets", name, limit)
            for name, (other, limit) in against.items()]
    rows.append(ratio_row("training step", f"DDP, {net}, {k} processes", "1 device, its share",
                          times, "processes", "1 device", float(at_once)))
    return rows


def command(quick: bool, json_to: str | None) -> None:
    """Measure, and print the table, or, for "-", JSON; a file gets JSON, and the table is printed too."""
    to_file = Path(json_to) if json_to not in (None, "-") else None
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
        print(f"{report.repeats} repeats per row, {report.seconds} s in all")


if __name__ == "__main__":
    about = "measure how fast the book's code is here, as a table of ratios (five minutes on two cores)"
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="fewer rows and repeats (half a minute)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE",
                        help="write JSON into FILE too, or print it instead of the table")
    args = parser.parse_args()
    command(args.quick, args.json)
