"""Why did the accuracy fall? One recipe, trained under every combination of the suspects, ten seeds each.

    python book/lab/study.py FILE

takes an hour and a quarter on two cores. If stopped, it resumes when it is run again; `--full-size` trains width 64 on
60,000 images with batches of 256 and 512, as published (for a GPU). `d2lpar.pages.settings` says what is trained.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from functools import lru_cache, partial
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2lpar.checks import check_counts
from d2lpar.data import Batches, DataError, load_data_fashion_mnist, provenance
from d2lpar.devices import all_cores, try_devices
from d2lpar.models import init_weights, initialize, resnet18
from d2lpar.pages.settings import FULL, LAST_STEPS, NORMS, SMALL, STARTS, Setting, Size, predicted, settings
from d2lpar.scratch import split_batch
from d2lpar.timing import describe_machine
from records import RecordError, run_missing


def run_setting(setting: Setting, seed: int, size: Size = SMALL) -> dict[str, Any]:
    """Train once, and measure what the last step of an epoch does.

    `seed` is that of the weights and of the order of the images. Two devices work in turn, all on one core.

    Returns:
        For each epoch the test accuracy at its end (`accuracies`) and before its last, partial minibatch
        (`before_last`), with the running statistics of replica 0; the median norm of the gradients of its steps
        (`gradient`) and that of the last one (`last_gradient`). For the end of the training the accuracy with each
        replica's `own` statistics on its half of the test images and with those of 1,024 training images
        (`recalibrated`). Of the very last step also `recalibrated_before` it; the accuracy if only the parameters
        (`new_parameters`) or only the running statistics (`new_statistics`) were taken from after it; and `stale`, how
        far the running means were from the recalibrated ones, in standard deviations, before and after it.

    Raises:
        ValueError: for a setting that could not be trained as it says.
    """
    check_setting(setting, size)
    cores = torch.get_num_threads()
    torch.set_num_threads(1)  # in channels_last, a few images on two threads can spoil memory (PyTorch 2.15)
    try:
        if setting == first_setting(size):
            return _first(seed, size)[0]
        return _train(setting, seed, size)[0]
    finally:
        torch.set_num_threads(cores)


def first_setting(size: Size) -> Setting:
    """What a page trains first, and what a used network has been through: one device, and a full last step."""
    return settings(size)[0]


def check_setting(setting: Setting, size: Size) -> None:
    """Raise ValueError for a setting that could not be trained as it says."""
    for name, known in (("last", LAST_STEPS), ("start", STARTS), ("norm", NORMS)):
        if getattr(setting, name) not in known:
            raise ValueError(f"{name} is one of {', '.join(known)}, got {getattr(setting, name)!r}")
    if setting.norm == "group" and (setting.start == "used" or size.width % 4):
        raise ValueError("group normalisation starts fresh, in groups of four channels, "
                         f"got start {setting.start!r} and width {size.width}")


@lru_cache(1)
def _first(seed: int, size: Size) -> tuple[dict[str, Any], nn.Module]:
    return _train(first_setting(size), seed, size)


def _train(setting: Setting, seed: int, size: Size) -> tuple[dict[str, Any], nn.Module]:
    """What `run_setting` returns, and the trained network."""
    with redirect_stdout(StringIO()):
        train_iter, test_iter = load_data_fashion_mnist(setting.batch_size, setting.num_train, size.num_test, seed)
    test_iter.batch_size = 256
    [device] = try_devices(1)
    replicas = sharing_parameters(starting_network(setting, seed, size).to(device), setting.num_devices)
    trainer = torch.optim.SGD(replicas[0].parameters(), setting.lr)
    found: dict[str, Any] = {name: [] for name in ("accuracies", "before_last", "gradient", "last_gradient")}
    for _ in range(size.num_epochs):
        norms = []
        for X, y in train_iter:
            if is_part := len(y) < setting.batch_size:
                found["before_last"].append(accuracy_in_turn(replicas[:1], test_iter))
                before = copy.deepcopy(replicas[0])
                if setting.last == "dropped":
                    continue
            trainer.zero_grad()
            divisor = setting.batch_size if setting.last == "damped" else len(y)
            norms.append(add_gradients(replicas, X.to(device), y.to(device), divisor))
            trainer.step()
        found["accuracies"].append(accuracy_in_turn(replicas[:1], test_iter))
        found["gradient"].append(rounded(median(norms)))
        found["last_gradient"].append(rounded(norms[-1]))
    found["own"] = accuracy_in_turn(replicas, test_iter)
    fitting = recalibrated(replicas[0], train_iter)
    found["recalibrated"] = accuracy_in_turn([fitting], test_iter)
    if is_part and setting.last != "dropped":
        fitting_before = recalibrated(before, train_iter)
        found["recalibrated_before"] = accuracy_in_turn([fitting_before], test_iter)
        found["new_parameters"] = accuracy_in_turn([combined(replicas[0], before)], test_iter)
        found["new_statistics"] = accuracy_in_turn([combined(before, replicas[0])], test_iter)
        found["stale"] = [rounded(apart(before, fitting_before)), rounded(apart(replicas[0], fitting))]
    return found, replicas[0]


def rounded(x: float) -> float:
    """Four digits: more than a figure can show."""
    return float(f"{x:.4g}")


def starting_network(setting: Setting, seed: int, size: Size) -> nn.Module:
    """ResNet-18, fresh or used; the weights are the same for the same seed."""
    net = resnet18(10, width=size.width)
    if setting.norm == "group":
        net.apply(use_group_norm)
    initialize(net, seed, init_weights)
    if setting.start == "used":
        fresh, net = net, copy.deepcopy(_first(seed, size)[1])
        with torch.no_grad():
            for p, weight in zip(net.parameters(), fresh.parameters()):
                if p.dim() > 1:  # of a convolution or a linear layer, which is what init_weights draws
                    p.copy_(weight)
    return net.to(memory_format=torch.channels_last)  # faster on a CPU


def use_group_norm(module: nn.Module) -> None:
    """Replace each BatchNorm among the direct parts of `module` by group normalisation, four channels a group."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(child.num_features // 4, child.num_features))


def sharing_parameters(net: nn.Module, num_devices: int) -> list[nn.Module]:
    """`net` and replicas of it with running statistics of their own, but the same parameters: for devices in turn."""
    replicas = [net, *[copy.deepcopy(net) for _ in range(num_devices - 1)]]
    for replica in replicas[1:]:
        for m, own in zip(net.modules(), replica.modules()):
            for name, p in m.named_parameters(recurse=False):
                own.register_parameter(name, p)
    return replicas


def add_gradients(replicas, X, y, divisor):
    """Add the gradient of the summed loss / divisor to `grad`, and return its norm.
    The replicas share their parameters, unlike real ones, so one update is enough."""
    for replica, A, c in zip(replicas, *split_batch(X, y, [X.device] * len(replicas))):
        if len(c):  # of a single image, the second replica gets none
            summed = F.cross_entropy(replica.train()(A), c, reduction="sum")
            (summed / divisor).backward()
    grads = [p.grad.flatten() for p in replicas[0].parameters() if p.grad is not None]
    return torch.cat(grads).norm().item()


@torch.no_grad()
def accuracy_in_turn(replicas: Sequence[nn.Module], test_iter: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The share of test images put into their class, in evaluation mode, each shard by its own replica."""
    right, count = 0, 0
    for X, y in test_iter:
        device = next(replicas[0].parameters()).device
        for replica, A, c in zip(replicas, *split_batch(X, y, [device] * len(replicas))):
            right += (replica.eval()(A).argmax(1) == c).sum().item()
        count += len(y)
    return right / count


@torch.no_grad()
def recalibrated(net: nn.Module, train_iter: Batches) -> nn.Module:
    """A copy of `net` whose running statistics are the mean of those of the first 1,024 training images, in fours.

    Source: Wu and Johnson, 2021, section 3 ("precise" statistics).
    """
    net = copy.deepcopy(net).train()
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.reset_running_stats()
            m.momentum = None  # the mean of all batches, not a moving one
    device = next(net.parameters()).device
    for X, _ in Batches(train_iter.images[:1024], train_iter.labels[:1024], 256):
        net(X.to(device))
    return net


def combined(parameters_of: nn.Module, statistics_of: nn.Module) -> nn.Module:
    """A network with the parameters of the one and the running statistics of the other."""
    net = copy.deepcopy(parameters_of)
    net.load_state_dict(dict(statistics_of.named_buffers()), strict=False)
    return net


@torch.no_grad()
def apart(net: nn.Module, other: nn.Module) -> float:
    """How far the running means of `net` are from those of `other`, in `other`'s standard deviations.

    A root mean square over all channels; 0 without running statistics.
    """
    here, there = dict(net.named_buffers()), dict(other.named_buffers())
    far = [(x - there[name]) / (there[name.replace("mean", "var")] + 1e-5).sqrt() for name, x in here.items()
           if name.endswith("running_mean")]
    return torch.cat(far).square().mean().sqrt().item() if far else 0.0


def run_study(path: str | Path, num_seeds: int = 10, size: Size = SMALL) -> None:
    """Train all settings, then the predicted ones, for seeds 0, 1, ..., and add a record of each to the file `path`.

    A process for each core, or one on a GPU. What the file holds already is not trained again.

    Raises:
        RecordError: as `run_missing`.
        DataError: if `size` needs the full set and that cannot be used.
    """
    check_counts(num_seeds=num_seeds)
    runs = [{"setting": s._asdict(), "seed": seed} for part in (settings(size), predicted(size).values())
            for seed in range(num_seeds) for s in part]
    run_and_record(path, "python book/lab/study.py", runs, run, size)


def run_and_record(path: str | Path, command: str, runs: list[dict[str, Any]], run: Callable, size: Size) -> None:
    """Add what `run(size, **one)` gives for each of `runs` to the file `path`, whose head says by which `command`.

    Raises:
        RecordError: as `run_missing`.
        DataError: if `size` needs the full set and that cannot be used.
    """
    about = {"command": command, "machine": describe_machine(), "size": size._asdict(),
             "data": provenance(size.num_train, size.num_test)}
    run_missing(path, about, runs, partial(run, size), 1 if torch.cuda.is_available() else all_cores())


def run(size: Size, setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """`run_setting` of what a line of the file holds."""
    return run_setting(Setting(**setting), seed, size)


def main(run: Callable, what: str) -> None:
    """The command line of this study and of the branches: which FILE, how many seeds, and how large."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("file", help="where the results go; stopped, the same command goes on from there")
    parser.add_argument("--seeds", type=int, default=10, help="how many (10)")
    parser.add_argument("--full-size", action="store_true",
                        help="width 64, 60,000 images, batches of 256 and 512, as published (for a GPU)")
    args = parser.parse_args()
    try:
        run(args.file, args.seeds, FULL if args.full_size else SMALL)
    except (DataError, RecordError, ValueError) as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit(f"\nStopped. The runs that had ended are in {args.file}; the same command goes on from there.")


if __name__ == "__main__":
    main(run_study, "train one recipe under every suspect, ten seeds each (an hour and a quarter on two cores)")
