"""What others have measured on their clusters: 151 runs on 2 to 4,608 devices, and what our model had said about them.

`scaling_inputs.csv` holds what is known before a run on many devices: the run on few devices that it is compared with,
the model, and the links. `book/lab/predict_scaling.py` made `scaling_without_overlap.csv` and
`scaling_with_overlap.csv` from it, before anybody here had opened `scaling_answers.csv`, which holds what was measured
and where it is published. All files hold facts from public tables, no text and no code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import permutations
from statistics import median
from typing import NamedTuple

from d2lpar.pages.published import rows_of

READ = ("real", "in memory", "resident", "not a bottleneck")  # real data are read, but for these three


class ScaledRun(NamedTuple):
    """A published run on many devices. Its efficiency is its throughput, divided by what it would be in proportion to
    the devices, from a run on few devices."""

    name: str
    source: str
    framework: str
    model: str
    gpu: str
    precision: str
    exchange: str  # allreduce, parameter-server, fsdp-full, fsdp-grad-op or zero1
    first_devices: int
    devices: int
    nodes: int
    link: str  # the slowest on the way of a gradient: PCIe, NVLink or network
    batch: int  # per device and pass
    passes: int  # in a step
    reads_data: bool  # in every step, from files or through decoders, as far as the source says
    estimated: bool  # an input that the source does not give
    linear_s: float  # of a step at an efficiency of 1
    efficiency: float  # as measured
    law: float  # the efficiency that was predicted without overlap
    hidden: float  # and with all the overlap that the model allows
    low: float  # the interval that was to hold 80%
    high: float
    url: str

    @property
    def added_s(self) -> float:
        """The seconds by which the measured step is longer than at an efficiency of 1."""
        return self.linear_s * (1 / self.efficiency - 1)

    @property
    def law_s(self) -> float:
        """The same, as predicted without overlap."""
        return self.linear_s * (1 / self.law - 1)


def reads_data(data: str) -> bool:
    """Whether a step reads its examples, by the words in the column `data`."""
    return data.startswith(READ[0]) and not any(words in data for words in READ[1:])


def link_of(row: dict[str, str]) -> str:
    """The slowest kind of link between the devices of a run."""
    if int(row["devices"]) > int(row["devices_on_intra_link"]):
        return "network"
    return "PCIe" if "PCIe" in row["intra_node_link"] else "NVLink"


def work_of(row: dict[str, str]) -> float:
    """The examples of a device in a step, relative to the run on few devices."""
    return (float(row["batch_per_device"]) * float(row["accumulation_steps"])
            / float(row["baseline_batch_per_device"]) / float(row["baseline_accumulation_steps"]))


@cache
def published_scaling() -> tuple[ScaledRun, ...]:
    """All 151, in the order of the file."""
    tables = [{row["id"]: row for row in rows_of(f"scaling_{name}.csv")}
              for name in ("answers", "without_overlap", "with_overlap")]
    runs = []
    for row in rows_of("scaling_inputs.csv"):
        answer, law, hidden = (table[row["id"]] for table in tables)
        runs.append(ScaledRun(
            row["id"], row["source"], row["framework"], row["model"], row["gpu"], row["precision"], row["exchange"],
            int(row["baseline_devices"]), int(row["devices"]), int(row["nodes"]), link_of(row),
            int(row["batch_per_device"]), int(row["accumulation_steps"]), reads_data(row["data"]),
            "estimate" in row["notes"], work_of(row) * float(row["baseline_seconds_per_step"]),
            float(answer["measured_efficiency"]), float(law["predicted_efficiency"]),
            float(hidden["predicted_efficiency"]), float(law["low"]), float(law["high"]), answer["url"]))
    return tuple(runs)


def sister_runs() -> list[tuple[ScaledRun, ScaledRun]]:
    """Pairs of one software on the same devices, at different batch sizes or precisions; both orders of each pair."""
    def same(run: ScaledRun) -> tuple[object, ...]:
        return (run.source, run.framework, run.model, run.gpu, run.exchange, run.first_devices, run.devices, run.nodes,
                run.reads_data)
    return [(one, other) for one, other in permutations(published_scaling(), 2) if same(one) == same(other)
            and (one.batch, one.precision) != (other.batch, other.precision)]


def typical_error(runs: Iterable[ScaledRun], predict: Callable[[ScaledRun], float]) -> float:
    """The median of the relative errors: the difference between prediction and measurement, over the measurement."""
    return median(abs(predict(run) / run.efficiency - 1) for run in runs)
