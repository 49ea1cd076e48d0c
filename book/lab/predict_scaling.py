"""What the book's model of a step says about other people's clusters, before their measurements are read.

`python book/lab/predict_scaling.py INPUTS > PREDICTIONS` reads a table with a run on few devices and a description of
a run on more of them in each row, and prints the efficiency of the second run: its throughput, divided by the
throughput that the first run would have if it grew in proportion to the devices. Nothing is hidden behind the backward
pass; with `--overlap 1`, everything that `data_parallel_s` can hide. `low` and `high` bound 80% of what we expect.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping

from d2lpar.cost import PUBLISHED, Link, ring_s
from d2lpar.ways import data_parallel_s

Row = Mapping[str, str]
USABLE = 12 / 12.5  # of a network's nominal bandwidth, as NCCL counts: see PUBLISHED
GATHERED = {"fsdp-full": 2, "fsdp-grad-op": 1, "zero1": 1}  # how often a step gathers the parameters, of 2 bytes each
# What we expect of links and of everything that the model leaves out. A guess, made before any answer was seen.
SLOWEST_LINK, LONGEST_STEP = 2.0, 1.15


def number(row: Row, column: str) -> float:
    """The number in this column, or 0 where there is none."""
    return float(row.get(column) or 0)


def exchange_s(row: Row, devices: int, slower: float = 1) -> float:
    """Seconds for what the replicas exchange in a step: a ring in each group of GPUs that share fast links, and a ring
    between these groups, with links that are so many times slower than published."""
    parts = int(row["model_parallel"] or 1)
    replicas, values = devices // parts, 1e6 * number(row, "parameters_millions") / parts
    size = values * number(row, "gradient_bytes")
    if row["exchange"] in GATHERED:  # a gather is half of an allreduce, and so is the reduce-scatter
        size = (size + 2 * values * GATHERED[row["exchange"]]) / 2
    near = min(replicas, int(row["devices_on_intra_link"])) if parts == 1 else 1
    kind = "PCIe 4 x16" if "PCIe" in row["intra_node_link"] else "NVLink 4"
    far_rate = USABLE / 8 * number(row, "inter_node_Gbps_per_node") / int(row["devices_per_node"])
    return this_ring_s(size, near, kind, number(row, "intra_GBps_per_direction_per_gpu") / slower) + this_ring_s(
        size / near, -(-replicas // near), "100 Gb/s network", far_rate / slower)


def this_ring_s(size: float, k: int, kind: str, gb_per_s: float) -> float:
    """Seconds for a ring of k devices, with the latency of this kind of link."""
    return ring_s(size, k, Link(PUBLISHED[kind].link.alpha_s, 1e-9 / gb_per_s)) if k > 1 else 0.0


def step_s(row: Row, devices: int, compute_s: float, overlap: float, slower: float) -> float:
    """Seconds of a step in which each device computes for `compute_s`."""
    k = devices // int(row["model_parallel"] or 1)
    once_s = exchange_s(row, devices, slower) * k / (2 * (k - 1)) if k > 1 else 0.0  # as `data_parallel_s` counts
    return data_parallel_s(k, compute_s, once_s, overlap)


def compute_s(row: Row, overlap: float, slower: float) -> float:
    """Seconds that each device computes in a step of the first run: what the exchange leaves of its step."""
    devices, measured_s = int(row["baseline_devices"]), number(row, "baseline_seconds_per_step")
    least, most = measured_s / 20, measured_s
    for _ in range(60):
        middle = (least + most) / 2
        if step_s(row, devices, middle, overlap, slower) > measured_s:
            most = middle
        else:
            least = middle
    return most


def efficiency(row: Row, overlap: float, slower: float = 1) -> float:
    """The efficiency of the second run, relative to the first."""
    work = number(row, "batch_per_device") * number(row, "accumulation_steps")
    work /= number(row, "baseline_batch_per_device") * number(row, "baseline_accumulation_steps")
    seconds = step_s(row, int(row["devices"]), work * compute_s(row, overlap, slower), overlap, slower)
    return work * number(row, "baseline_seconds_per_step") / seconds


def main() -> None:
    """Print a table of predictions for the table of inputs that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("inputs")
    parser.add_argument("--overlap", type=float, default=0, choices=(0, 1))
    chosen = parser.parse_args()
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["id", "predicted_efficiency", "low", "high"])
    with open(chosen.inputs, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            low = efficiency(row, 0, SLOWEST_LINK) / LONGEST_STEP
            found = efficiency(row, chosen.overlap), low, efficiency(row, 1)
            table.writerow([row["id"], *(f"{each:.4f}" for each in found)])


if __name__ == "__main__":
    main()
