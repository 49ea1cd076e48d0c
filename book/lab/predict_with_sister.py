"""The efficiency of other people's runs once more, from one measurement on the same devices.

`python book/lab/predict_with_sister.py INPUTS > PREDICTIONS` reads and prints tables like `predict_scaling`. A row may
also hold a *sister run*: the same software on the same devices, at a different batch size or precision. Our rule: in
both runs, the devices add the same time to a step, except for what the law of the first program says about their bytes.

A row without a sister run gets the first program's prediction, times the median of measured / predicted in the 151
published runs, for runs that read their data and for the others. All intervals hold 80% of what we found in those runs.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable
from functools import cache

import numpy as np

from d2lpar.pages.scaling import published_scaling, reads_data, sister_runs, work_of
from predict_scaling import Row, efficiency, exchange_s, number

QUANTILES = (0.5, 0.1, 0.9)
FEWER_BYTES = ("fp16", "bf16")  # where the gradients have 2 bytes, as the tables' precisions begin


@cache
def added_ratios() -> tuple[float, float, float]:
    """What runs added to a step, divided by what their sisters let us expect: the median, and the middle 80%."""
    return middle_and_ends(b.added_s / max(a.added_s + b.law_s - a.law_s, 1e-9)
                           for a, b in sister_runs() if a.passes == b.passes)


@cache
def law_ratios(reads: bool) -> tuple[float, float, float]:
    """The efficiency of runs that read their data, or of the others, divided by the law's: the same three."""
    return middle_and_ends(run.efficiency / run.law for run in published_scaling() if run.reads_data == reads)


def middle_and_ends(ratios: Iterable[float]) -> tuple[float, float, float]:
    """The median of the ratios, and the bounds of the middle 80%."""
    middle, low, high = np.quantile(list(ratios), QUANTILES)
    return float(middle), float(low), float(high)


def by_law_s(row: Row) -> float:
    """The seconds that more devices add to a step, by the first program."""
    return exchange_s(row, int(row["devices"])) - exchange_s(row, int(row["baseline_devices"]))


def sister_of(row: Row) -> dict[str, str]:
    """The row of the sister run, as far as it is known."""
    precision = row["sister_precision"] or row["precision"]
    sister = dict(row) | {"batch_per_device": row["sister_batch_per_device"] or row["batch_per_device"]}
    if precision != row["precision"]:
        sister["gradient_bytes"] = "2" if precision.startswith(FEWER_BYTES) else "4"
    return sister


def sister_added_s(row: Row) -> float:
    """The seconds that more devices added to a step of the sister run, as measured."""
    devices, first = number(row, "devices"), number(row, "baseline_devices")
    known = number(row, "baseline_throughput") * number(row, "baseline_seconds_per_step") / first  # of a device's step
    share = known * work_of(sister_of(row))
    return share * (devices / number(row, "sister_throughput_at_devices") - first / number(
        row, "sister_baseline_throughput"))


def with_sister(row: Row) -> tuple[float, float, float]:
    """The efficiency, and its interval, of a row with a sister run."""
    added_s = max(sister_added_s(row) + by_law_s(row) - by_law_s(sister_of(row)), 0.0)
    linear_s = work_of(dict(row)) * number(row, "baseline_seconds_per_step")
    _, less, more = added_ratios()
    middle, low, high = (linear_s / (linear_s + ratio * added_s) for ratio in (1, more, less))
    return middle, low, high


def without_sister(row: Row) -> tuple[float, float, float]:
    """The efficiency, and its interval, of a row without a sister run."""
    law, (middle, low, high) = efficiency(row, 0), law_ratios(reads_data(row["data"]))
    return middle * law, low * law, high * law


def main() -> None:
    """Print a table of predictions for the table of inputs that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("inputs")
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["id", "predicted_efficiency", "low", "high"])
    with open(parser.parse_args().inputs, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            predict = with_sister if number(row, "sister_throughput_at_devices") else without_sister
            table.writerow([row["id"], *(f"{each:.4f}" for each in predict(row))])


if __name__ == "__main__":
    main()
