"""The door of every public function: what makes no sense is refused by the package, in one line, not by what it calls."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from torch.utils import _pytree as pytree

import d2lpar
from d2lpar.base import checks
from d2lpar.base.devices import run_on_devices
from d2lpar.base.timing import Span
from d2lpar.data.official_files import DataError
from d2lpar.larger_batches.accumulation import accumulate_gradients
from d2lpar.one_step.concise import evaluate_accuracy_gpus
from d2lpar.one_step.models import LeNet, lenet_params
from d2lpar.one_step.scratch import evaluate_accuracy, get_params, train_batch
from d2lpar.one_step.step_times import Piece, alone_s, by_data_s, pieces_of
from d2lpar.pages.explorer import Slider, bars
from d2lpar.pages.message_audit import audit
from d2lpar.pages.plot import draw_curves, draw_intervals, draw_panels, draw_seeds, draw_trainings
from d2lpar.pages.records import RecordError
from d2lpar.pages.step_spans import record_step
from d2lpar.pages.verdicts import check
from d2lpar.sums.cost import Link, ring_s
from d2lpar.sums.messages import exchange
from helpers.modules import mlp
from test_names import listed

pytestmark = pytest.mark.usefixtures("one_core", "small_data")

CPU = torch.device("cpu")
PACKAGE = Path(d2lpar.__file__).parent
HOMES = {module.rpartition(".")[2]: module for module in listed(PACKAGE.parent)}
NAN, INF = float("nan"), float("inf")

# what is given in place of each argument, and also as the only entry of a list, and beside a good one
JUNK = [None, True, 1.5, 0, -1, NAN, INF, Fraction(1, 2), 1j, "3", "", b"3", object(), int, {}, {"a": None}, [], (), [[]],
        range(3), {1, 2}, np.array(3.0), np.zeros((2, 2)), torch.tensor(3.0), torch.zeros(0), torch.zeros(2, 2),
        torch.zeros(3, dtype=torch.int64), torch.zeros(3, requires_grad=True), torch.full((6, 1, 28, 28), NAN),
        torch.zeros(6, 1, 28, 28), torch.zeros(6, dtype=torch.bool), torch.device("cpu"),
        [torch.zeros(3), torch.zeros(2)], [torch.zeros(3), torch.zeros(3).double()], [[torch.zeros(3)], []]]

# Tried elsewhere, because they would download, start processes or train as soon as their arguments are good
ELSEWHERE = {"download.download_fashion_mnist", "launch.run_ranks", "launch.RankGroup", "ranks.ring_allreduce",
             "ddp.broadcast_start", "ddp.average_gradients", "ddp.average_flat", "ddp.average_in_hooks", "ddp.OwnDDP",
             "traffic.record_rank", "evaluation.count_right_on_ranks", "records.run_missing", "study.run_study", "study.run_setting",
             "branches.run_branches", "branches.run_all_branches",
             "diagnosis.diagnose"}

# What is checked by whoever calls it, because it runs in the innermost loop, or because nobody else calls it
INNER = set("""
    checks.shown checks.is_number checks.check_counts checks.check_seeds checks.check_numbers checks.check_functions
    checks.check_truth_values checks.check_list checks.check_tensors checks.check_device checks.check_devices
    checks.check_module checks.check_labels checks.check_lr
    interrupts.Waiting door.taught door.bare door.is_door history.in_notebook official_files.File official_files.DataError official_files.named_root
    timing.Span messages.Message messages.deliver message_audit.AuditError buffers.why_not_written collectives.sum_blocks
    models.lenet models.check_images models.check_lenet models.check_start models.check_net models.init_weights scratch.shard_backward
    scratch.checked_params scratch.check_step scratch.check_batch scratch.check_update scratch.check_examples scratch.checked_images
    scratch.fresh_gradients concise.labelled concise.some_examples accumulation.one_number_each plot.growing_curve models.Residual
    step_times.Piece step_times.Stages step_times.check_way step_times.check_stages step_times.check_micro step_times.check_pieces step_times.check_spans explorer.Slider explorer.check_bars
    explorer.check_curves explorer.check_inputs explorer.check_spec yardstick.check_counterparts yardstick.check_comparable cost.Link cost.Published cost.check_cost cost.check_sizes
    cost.check_rounds cost.check_measurements cluster_cost.check_power_of_two cluster_cost.check_nodes cluster_cost.check_time devices.check_num_devices buffers.check_buffers buffers.check_lists
    concise.count_right concise.unwrap data_parallel.check_device_ids data_parallel.check_on data_parallel.check_lengths
    data_parallel.check_leaves data_parallel.check_nothing_kept data_parallel.check_once_differentiable
    noise.check_gradients kept_bytes.Kept kept_bytes.most_kept_bytes published.Training published.Control data_parallel.Replica data_parallel.InThreads data_parallel.trainable
    data_parallel.trainable_of data_parallel.unchanged_on_error data_parallel.ungather data_parallel.joined
    data_parallel.summed data_parallel.graph_is_kept
    devices.all_gather_here batchnorm.Normalize batchnorm.moments_of_all batchnorm.gather_vectors batchnorm.is_process_group
    batchnorm.over_examples batchnorm.along_channels batchnorm.check_first_derivative batchnorm.check_channels batchnorm.check_input
    batchnorm.check_enough batchnorm.check_settings batchnorm.check_moments
    schedules.check_scaling schedules.check_warmup accumulation.check_accumulation accumulation.check_one_each
    replicas.check_cut replicas.check_replicable replicas.check_outputs official_files.check_folder launch.RankError launch.loopback
    ranks.rank_device ranks.check_message ddp.trained_params ddp.gradient_of ddp.flat_gradients ddp.write_means ddp.at_end_of_backward
    ddp.check_replica ddp.check_replicas ddp.check_unchanged
    records.RecordError records.check_runs study.Size study.Setting study.settings study.predicted study.first_setting study.check_setting study.starting_network
    study.use_group_norm study.sharing_parameters study.add_gradients study.accuracy_in_turn study.recalibrated study.combined
    study.apart study.rounded study.run branches.stepped branches.branch branches.drawn branches.mean_squares branches.run evaluation.unwrap_ddp
    recording.Step recording.Record recording.record_training rules.Rule rules.Evidence rules.Diagnosis rules.compare rules.moves rules.same_steps rules.note_batchnorm
""".split())
WHOLE_MODULES_INNER = ("museum.", "ddp_trainings.", "report.", "cases.", "single.", "run.")  # wrong on purpose; parts of one command


def images() -> dict:
    generator = torch.Generator().manual_seed(0)
    return {"X": torch.rand(6, 1, 28, 28, generator=generator), "y": torch.tensor([1, 2, 3, 4, 5, 6])}


def step() -> dict:
    return {**images(), "replicas": [get_params(lenet_params(), CPU) for _ in range(2)], "devices": [CPU] * 2, "lr": 0.1}


def buffers() -> dict:
    return {"data": [torch.zeros(6), torch.ones(6)]}


PIECES = [Piece(1e3, 10, 4, 3), Piece(2e3, 20, 5, 2)]
SPEC = bars({"batch": Slider("batch size", 8, 1, 9, 1)}, {"flop": "7", "flops_per_s": "3"}, {"alone": alone_s}, "alone")


def with_gradient(p: torch.Tensor) -> list:
    p.grad = torch.ones_like(p)
    return [p]


def lists() -> list:
    return [[torch.zeros(3), torch.ones(2)] for _ in range(2)]


# For every public function, arguments that it takes; an argument that is not here is not tried.
GOOD: dict[str, Callable[[], dict]] = {
    "interrupts.uninterrupted": lambda: {"patience": 3},
    "devices.try_devices": lambda: {"k": 2},
    "devices.describe_devices": lambda: {"devices": [CPU]},
    "devices.cores_per_device": lambda: {"cores": 1},
    "devices.run_on_devices": lambda: {"fn": str, "column": [1, 2]},
    "devices.run_on_device_0": lambda: {"fn": dict},
    "devices.set_seed": lambda: {"seed": 0},
    "devices.synchronize": lambda: {"devices": [CPU]},
    "timing.time_interleaved": lambda: {"cases": {"a": dict}, "repeats": 1, "warmup": 0, "devices": []},
    "timing.time_each_repeat": lambda: {"cases": {"a": dict}, "repeats": 1, "warmup": 0, "devices": [], "before": dict},
    "timing.Stopwatch": lambda: {"devices": [CPU]},
    "official_files.raw_folder": lambda: {"root": Path("there")},
    "official_files.read_set": lambda: {"root": Path("not there"), "is_train": True, "count": 3},
    "standin.standin": lambda: {"is_train": True, "count": 3},
    "batches.Batches": lambda: {"images": torch.zeros(3, 1, 28, 28, dtype=torch.uint8), "labels": torch.zeros(3).byte(), "batch_size": 2,
                             "shuffle_seed": 1},
    "batches.load_data_fashion_mnist": lambda: {"batch_size": 2, "num_train": 3, "num_test": 3, "seed": 0},
    "batches.provenance": lambda: {"num_train": 3, "num_test": 3},
    "models.lenet_params": lambda: {"scale": 0.1, "seed": 0},
    "models.resnet18": lambda: {"num_classes": 2, "in_channels": 1, "width": 2},
    "models.initialize": lambda: {"net": mlp(), "seed": 0},
    "results.stored_results": lambda: {"name": "lenet_trainings"},
    "records.read_records": lambda: {"path": PACKAGE / "pages" / "stored" / "last_minibatch.jsonl"},
    "results.stored_records": lambda: {"name": "batch_sizes"},
    "results.stored_script": lambda: {"name": "train_ddp"},
    "verdicts.check": lambda: {"label": "ex-means"},
    "verdicts.verdict": lambda: {"check": str, "answer": str},
    "schedules.linear_lr": lambda: {"lr": 0.1, "k": 2},
    "schedules.warmup_lr": lambda: {"step": 1, "lr": 0.1, "k": 2, "warmup": 2, "num_updates": 3},
    "accumulation.accumulate_gradients": lambda: {"net": mlp(), "num_microbatches": 2},
    "yardstick.one_worker": lambda: {**images(), "params": get_params(lenet_params(), CPU), "lr": 0.1},
    "yardstick.distance": lambda: {"ours": [torch.ones(2)], "theirs": [torch.ones(2)]},
    "yardstick.same_bits": lambda: {"replicas": [[torch.ones(2)], [torch.ones(2)]]},
    "yardstick.equal_bits": lambda: {"p": torch.ones(2), "q": torch.ones(2)},
    "step_times.alone_s": lambda: {"batch": 8, "flop": 1e3, "flops_per_s": 1e6},
    "step_times.by_data_s": lambda: {"k": 2, "batch": 8, "flop": 1e3, "params": 10, "flops_per_s": 1e6, "bytes_per_s": 1e3, "overlap": 0.5},
    "step_times.by_channels_s": lambda: {"k": 2, "batch": 8, "flop": 1e3, "reads": 10, "flops_per_s": 1e6, "bytes_per_s": 1e3, "overlap": 0.5},
    "step_times.by_layers_s": lambda: {"batch": 8, "flop": 1e3, "busiest": 600, "crossing": 20, "widest": 10, "flops_per_s": 1e6,
                                 "bytes_per_s": 1e3, "overlap": 0.5, "micro": 4},
    "step_times.stages_of": lambda: {"pieces": PIECES, "k": 2},
    "step_times.cuts_of": lambda: {"pieces": PIECES, "k": 2},
    "step_times.pieces_of": lambda: {"parts": [mlp()]},
    **dict.fromkeys([f"step_times.{name}" for name in ("data_spans", "channel_spans", "layer_spans")], lambda: {
        "pieces": PIECES, "k": 2, "batch": 8, "flops_per_s": 1e6, "bytes_per_s": 1e3, "overlap": True}),
    "explorer.expression": lambda: {"formula": by_data_s, "overlap": "0.5"},
    "explorer.bars": lambda: {"sliders": {"batch": Slider("batch size", 8, 1, 9, 1)}, "given": {"flop": "7", "flops_per_s": "3"},
                              "formulas": {"alone": alone_s}, "alone": "alone"},
    "explorer.curves": lambda: {"sliders": {"k": Slider("devices", 4, 1, 8, 1)}, "given": {"size_bytes": "7", "link.alpha_s": "2",
                                "link.beta_s_per_byte": "3"}, "formulas": {"ring": ring_s}, "along": "k", "places": [2, 4], "alone": "5"},
    "explorer.still_of": lambda: {"spec": SPEC},
    "explorer.show_explorer": lambda: {"spec": SPEC},
    "buffers.overlaps": lambda: {"tensors": [torch.ones(2)]},
    "buffers.as_arrays": lambda: {"tensors": [torch.ones(2)]},
    "buffers.cut": lambda: {**buffers(), "num_chunks": 2},
    "messages.Meter": lambda: {"devices": [CPU]},
    "message_audit.audit": buffers,
    "messages.exchange": lambda: {"parts": lists(), "moves": [(0, 1, 0)], "into": lists()},
    **dict.fromkeys([f"collectives.{name}" for name in (
        "allreduce_naive", "allreduce_tree", "reduce_scatter", "all_gather", "allreduce_ring", "allreduce_blocks")], buffers),
    "scratch.allreduce": buffers,
    "collectives.allreduce_flat": lambda: {"device_tensors": lists()},
    "plot.rank_style": lambda: {"rank": 1},
    "plot.show": lambda: {"fig": plt.figure(label="words"), "stored": True},
    "plot.show_live": lambda: {"fig": plt.figure()},
    "plot.draw_curves": lambda: {"curves": {"a": [1.0, 2.0]}, "x": [1, 2], "xscale": "linear", "yscale": "linear",
                                 "points": {"a": [1.0, 2.0]}},
    "plot.draw_fit": lambda: {"sizes_bytes": [1, 2], "seconds": [1.0, 2.0], "fits": {"a": [1.0, 2.0]}},
    "plot.draw_chunks": lambda: {"states": {"a": [[1, 1], [1, 1]]}},
    "plot.draw_timeline": lambda: {"spans": [Span(0, "forward", 0.0, 1.0)], "communication": ["allreduce"], "unit_s": 1.0},
    "plot.draw_timelines": lambda: {"groups": {"a": [Span(0, "forward", 0.0, 1.0)]}, "marks": {"alone": 1.0}, "communication": ["send"]},
    "plot.draw_cuts": lambda: {"layers": 4, "channels": 4},
    "plot.draw_steps": lambda: {"steps": {"a": [Span(0, "forward", 0.0, 1.0)]}},
    "plot.draw_seeds": lambda: {"curves": {"a": [[1.0, 2.0], [2.0, 3.0]]}, "x": [1, 2], "yscale": "linear", "xscale": "linear",
                                "lines": {"a": [1.0, 2.0]}},
    "plot.draw_memory": lambda: {"addresses": {"a": [1, 1]}},
    "plot.draw_images": lambda: {"images": torch.zeros(2, 1, 3, 3), "names": ["a", "b"]},
    "plot.draw_ratios": lambda: {"blocks": {"a": {"b": (1.0, 2.0, 3.0, None)}}, "narrow": False},
    "plot.draw_trainings": lambda: {"groups": {"a": [([1.0], [2.0])]}},
    "plot.draw_panels": lambda: {"panels": {"a": [[1.0, 2.0], [2.0, 3.0]]}, "x": [1, 2]},
    "plot.draw_intervals": lambda: {"rows": {"a": [1.0, 2.0, 3.0]}},
    "noise.noise_scale": lambda: {"gradients": torch.tensor([[1.0, 2.0], [2.0, 1.0]]), "b": 8},
    "plot.draw_step": lambda: {"shard_sizes": [3, 3]},
    "history.History": lambda: {"num_epochs": 1, "num_batches": 1, "devices": [CPU]},
    "ddp.assign_buckets": lambda: {"tensors": [torch.ones(2)], "first_bytes": 4, "cap_bytes": 8},
    "scratch.get_params": lambda: {"params": lenet_params(), "device": CPU},
    "scratch.split_batch": lambda: {**images(), "devices": [CPU]},
    "scratch.train_batch_threads": step,
    "scratch.train_batch": step,
    "step_spans.record_step": step,
    "scratch.sgd": lambda: {"params": with_gradient(torch.ones(2)), "lr": 0.1, "batch_size": 2},
    "scratch.evaluate_accuracy": lambda: {"params": lenet_params(), **images()},
    "scratch.train": lambda: {"num_devices": 2, "batch_size": 70, "lr": 0.1, "num_epochs": 1, "params": lenet_params(), "seed": 0, "num_train": 70},
    "cost.naive_s": lambda: {"size_bytes": 3, "k": 2, "link": Link(1.0, 1.0)},
    "cost.tree_s": lambda: {"size_bytes": 3, "k": 2, "link": Link(1.0, 1.0)},
    "cost.ring_s": lambda: {"size_bytes": 3, "k": 2, "link": Link(1.0, 1.0)},
    "cluster_cost.halving_s": lambda: {"size_bytes": 3, "k": 2, "link": Link(1.0, 1.0)},
    "cluster_cost.double_tree_s": lambda: {"size_bytes": 3, "k": 2, "link": Link(1.0, 1.0), "pieces": 2},
    "cluster_cost.nested_halving_s": lambda: {"size_bytes": 3, "k": 4, "per_node": 2, "inside": Link(1.0, 1.0), "between": Link(2.0, 2.0)},
    "cluster_cost.nested_ring_s": lambda: {"size_bytes": 3, "k": 4, "per_node": 2, "inside": Link(1.0, 1.0), "between": Link(2.0, 2.0)},
    "cluster_cost.bus_bandwidth": lambda: {"size_bytes": 3, "k": 2, "seconds": 0.5},
    "cluster_cost.bucket_sizes": lambda: {"sizes_bytes": [1, 2], "first_bytes": 1, "cap_bytes": 2},
    "cost.rounds_s": lambda: {"rounds": [[1], [2, 2]], "link": Link(1.0, 1.0), "common": Link(0.0, 0.0)},
    "cost.fit_link": lambda: {"sizes_bytes": [1, 2], "seconds": [1.0, 2.0]},
    "replicas.scatter": lambda: {"inputs": torch.ones(2), "devices": [CPU], "dim": 0},
    "replicas.replicate": lambda: {"module": mlp(), "device": CPU, "copy": True},
    "replicas.gather": lambda: {"outputs": [torch.ones(2), torch.ones(1)], "device": CPU, "dim": 0},
    "data_parallel.DataParallel": lambda: {"module": mlp(), "device_ids": [CPU], "output_device": CPU, "dim": 0},
    "batchnorm.moments": lambda: {"x": torch.ones(3, 2)},
    "batchnorm.combine_moments": lambda: {"counts": [3, 0], "means": [torch.ones(2)] * 2, "squares": [torch.ones(2)] * 2},
    "batchnorm.SyncBatchNorm": lambda: {"num_features": 3, "eps": 0.1, "momentum": 0.1, "affine": True, "track_running_stats": True},
    "batchnorm.convert_batchnorm": lambda: {"module": mlp()},
    "concise.evaluate_accuracy_gpus": lambda: {"net": mlp(torch.float32), "y": torch.tensor([0, 1, 2]), "devices": [CPU]},
    "concise.train_data_parallel": lambda: {"net": LeNet(), "num_devices": 2, "batch_size": 70, "lr": 0.1, "num_epochs": 1, "seed": 0},
}

# Where arguments are not simply passed by their names
CALLS: dict[str, Callable] = {
    "devices.run_on_devices": lambda fn, column: run_on_devices(fn, column),
    "messages.exchange": lambda **kwargs: exchange(add=True, **kwargs),
    "scratch.evaluate_accuracy": lambda params, X, y: evaluate_accuracy(params, [(X, y)]),
    "concise.evaluate_accuracy_gpus": lambda net, y, devices: evaluate_accuracy_gpus(net, [(torch.ones(3, 6), y)], devices=devices),
    "accumulation.accumulate_gradients": lambda **kwargs: accumulate_gradients(X=torch.ones(3, 6).double(), y=torch.tensor([0, 1, 2]), **kwargs),
    "message_audit.audit": lambda data: audit(list, data),
    "verdicts.check": lambda label: check(label, dict),
    "step_times.pieces_of": lambda parts: pieces_of(parts, torch.ones(3, 6).double()),
    "plot.draw_curves": lambda **kwargs: draw_curves(xlabel="x", ylabel="y", **kwargs),
    "plot.draw_trainings": lambda groups: draw_trainings(groups, "x", "y"),
    "plot.draw_panels": lambda **kwargs: draw_panels(xlabel="x", ylabel="y", **kwargs),
    "plot.draw_intervals": lambda rows: draw_intervals(rows, "x"),
    "plot.draw_seeds": lambda **kwargs: draw_seeds(xlabel="x", ylabel="y", **kwargs),
    "step_spans.record_step": lambda **kwargs: record_step(train_batch, **kwargs),
}


BLOCKS = ("interrupts.uninterrupted", "devices.cores_per_device", "buffers.cut")  # are called when they are entered


def public(name: str) -> Callable:
    """The function or class of this name in the package."""
    module, _, attribute = name.rpartition(".")
    return CALLS.get(name) or getattr(import_module(HOMES[module]), attribute)


def call(name: str, arguments: dict[str, Any]) -> None:
    result = public(name)(**arguments)
    if name in BLOCKS:
        with result:
            pass


@cache
def raises(file: str) -> list[range]:
    """The lines of a module's `raise` statements."""
    return [range(node.lineno, node.end_lineno + 1) for node in ast.walk(ast.parse(Path(file).read_text("utf8"))) if isinstance(node, ast.Raise)]


def complaint(name: str, argument: str, junk: object) -> str:
    """How the package has answered wrongly to this argument; "" if it took it, or refused it itself."""
    try:
        call(name, {**GOOD[name](), argument: junk})
    except (ValueError, DataError, RecordError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        own = Path(last.filename).is_relative_to(PACKAGE) and any(last.lineno in lines for lines in raises(last.filename))
        if own and "\n" not in str(error) and len(str(error)) < 2000:
            return ""
        return f"{name}({argument}={checks.shown(junk)}): {last.filename}:{last.lineno}: {error!r}"
    except Exception as error:
        return f"{name}({argument}={checks.shown(junk)}): {error!r}"
    finally:
        plt.close("all")
    return ""


def every_public_name(root: Path) -> set[str]:
    found = set()
    for stem, module in HOMES.items():
        loaded = import_module(module)
        found |= {f"{stem}.{name}" for name, value in vars(loaded).items()
                  if not name.startswith("_") and getattr(value, "__module__", None) == module and callable(value)}
    return {name for name in found if not name.startswith(WHOLE_MODULES_INNER)}


def test_every_public_function_is_tried_or_is_an_inner_one(root: Path) -> None:
    asking = {name for name in every_public_name(root) if name in INNER or signature(public(name)).parameters}
    assert asking ^ (set(GOOD) | INNER | ELSEWHERE) == set(), "of the package or of this test, but not both"


@pytest.mark.parametrize("name", GOOD)
def test_what_is_good_is_taken(name: str) -> None:
    with suppress(DataError):  # there are no files in the folder
        call(name, GOOD[name]())


# What could be taken for sense, and must not be
NO_LR, NO_COUNT, NO_SEED = [NAN, INF, -0.1, True, "0.1", None], [0, -1, 1.5, True, "2", None], [-1, 1.5, True, 2**64]
MUST_BE_REFUSED = {
    **{(name, "lr"): NO_LR for name in ("scratch.train_batch", "scratch.train_batch_threads", "scratch.sgd", "scratch.train",
                                        "yardstick.one_worker", "concise.train_data_parallel", "schedules.linear_lr",
                                        "schedules.warmup_lr")},
    **{(name, argument): NO_COUNT for name, argument in (
        ("devices.try_devices", "k"), ("devices.cores_per_device", "cores"), ("batches.Batches", "batch_size"),
        ("scratch.sgd", "batch_size"), ("scratch.train", "num_devices"), ("models.resnet18", "width"),
        ("timing.time_interleaved", "repeats"), ("history.History", "num_epochs"), ("concise.train_data_parallel", "batch_size"),
        ("accumulation.accumulate_gradients", "num_microbatches"), ("schedules.warmup_lr", "num_updates"))},
    **{(name, "k"): [0, 0.5, NAN, INF, True, "2", None] for name in ("schedules.linear_lr", "schedules.warmup_lr")},
    ("accumulation.accumulate_gradients", "loss"): [torch.nn.functional.cross_entropy, None, 3],
    **{(name, "seed"): NO_SEED for name in ("devices.set_seed", "models.initialize", "batches.load_data_fashion_mnist")},
    **{(name, "init"): [3, "normal", True] for name in ("models.initialize", "concise.train_data_parallel")},
    **{(name, "y"): [torch.ones(6), torch.ones(6, dtype=torch.bool), torch.ones(6, 1, dtype=torch.int64), torch.ones(5).long()]
       for name in ("scratch.train_batch", "scratch.evaluate_accuracy", "yardstick.one_worker")},
    **{(name, "X"): [torch.full((6, 1, 28, 28), NAN), torch.zeros(6, 28, 28), torch.zeros(6, 1, 28, 28, dtype=torch.uint8)]
       for name in ("scratch.train_batch", "scratch.evaluate_accuracy", "yardstick.one_worker")},
}


@pytest.mark.parametrize("name, argument", MUST_BE_REFUSED)
def test_what_only_looks_like_sense_is_refused_before_anything_is_changed(name: str, argument: str) -> None:
    for junk in MUST_BE_REFUSED[name, argument]:
        arguments = {**GOOD[name](), argument: junk}
        tensors = [x for x in pytree.tree_leaves(arguments) if isinstance(x, torch.Tensor)]
        before = [x.detach().clone() for x in tensors]
        with pytest.raises(ValueError):
            call(name, arguments)
        assert all(torch.equal(x.nan_to_num(), old.nan_to_num()) for x, old in zip(tensors, before))


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    checks.check_counts(k=np.int64(3))
    with pytest.raises(ValueError, match="k must be a whole number of at least 1, got np.int64"):
        checks.check_counts(k=np.int64(0))


@pytest.mark.parametrize("name", GOOD)
def test_junk_is_refused_in_words_of_the_package(name: str) -> None:
    found = []
    for argument, good in GOOD[name]().items():
        beside = [[*good[:1], junk] for junk in JUNK] if isinstance(good, list) else []
        for junk in [*JUNK, *([junk] for junk in JUNK), *beside]:
            found.append(complaint(name, argument, junk))
    assert list(filter(None, found)) == []


NESTED = st.recursive(st.sampled_from(JUNK), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=6)


@given(st.data())
def test_nested_junk_is_refused_too(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(GOOD)))
    assert complaint(name, data.draw(st.sampled_from(sorted(GOOD[name]()))), data.draw(NESTED)) == ""
