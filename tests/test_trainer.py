"""Tests of d2lpar/trainer.py: every strategy trains the same, and a state holds all that the next step depends on."""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from d2lpar import trainer
from d2lpar.one_step.yardstick import distance, same_bits
from d2lpar.pages.drill import differing
from d2lpar.processes.checkpoints import newest_checkpoint, save_checkpoint
from d2lpar.trainer import Refused, Stopped, Training

SMALL = "--num-train=140 --num-test=70 --batch-size=24"  # six minibatches an epoch, the last one of 20
ALL = "--optimizer=adam --lr=0.002 --warmup=15 --flip"  # a state of every kind
RESNET = "--model=resnet18 --width=4 --float64"


def training_of(words: str, *more: Any) -> Training:
    """A training of few images on the ranks that there are."""
    parser = argparse.ArgumentParser()
    trainer.add_options(parser)
    args = parser.parse_args(f"{SMALL} {words}".split())
    trainer.check_options(args, dist.get_world_size())
    return Training(args, *more)


def advance(training: Training, steps: int) -> list[float]:
    """Make so many updates, as `fit` does; their losses."""
    losses = []
    for _ in range(steps):
        losses.append(training.take_step(*next(training.batches()))[0])
        if training.step % training.per_epoch == 0:
            training.epoch_loss = 0.0
    return losses


def values(training: Training) -> list[torch.Tensor]:
    """The parameters, as they are now."""
    return [p.detach().clone() for p in training.module.parameters()]


def trained(rank: int, words: str, steps: int = 20) -> tuple[list[float], list[torch.Tensor]]:
    """What a rank's training comes to."""
    training = training_of(words)
    return advance(training, steps), values(training)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is rank 0 of 1, on the CPU, and no process group is left."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    trainer.join(60)
    yield
    dist.destroy_process_group()


HOW = ["--lr=0.05", "--lr=0.05 --warmup=15", "--optimizer=adam --lr=0.002", "--optimizer=adam --lr=0.002 --warmup=15"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("devices", [2, 3])
def test_dataparallel_trains_as_one_worker(alone: None, how: str, devices: int) -> None:
    losses, params = trained(0, f"--float64 {how}")
    same_losses, same_params = trained(0, f"--float64 {how} --strategy=dataparallel --devices={devices}")
    assert distance(same_params, params) < 1e-12 and same_losses == pytest.approx(losses, rel=1e-12)
    assert distance(values(training_of("--float64")), params) > 0.01  # it has moved


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_own_and_ddp_train_as_one_worker_and_all_ranks_have_the_same_bits(alone: None, group_of: Callable, how: str, ranks: int) -> None:
    losses, params = trained(0, f"--float64 {how}")
    for strategy in ("own", "ddp"):
        every = group_of(ranks).run(trained, f"--float64 {how} --strategy={strategy}")
        assert same_bits([theirs for _, theirs in every])
        for same_losses, same_params in every:
            assert distance(same_params, params) < 1e-12 and same_losses == pytest.approx(losses, rel=1e-12)


def test_batchnorm_sees_shards_so_resnet18_trains_otherwise_on_ranks_and_own_and_ddp_agree(alone: None, group_of: Callable) -> None:
    _, single = trained(0, RESNET, 5)
    _, one = group_of(1).run(trained, f"{RESNET} --strategy=ddp", 5)[0]
    (_, own), (_, other_own) = group_of(2).run(trained, f"{RESNET} --strategy=own", 5)
    (_, ddp), (_, other_ddp) = group_of(2).run(trained, f"{RESNET} --strategy=ddp", 5)
    assert same_bits([own, other_own]) and same_bits([ddp, other_ddp])
    print(distance(one, single), distance(own, ddp), distance(ddp, single))
    assert distance(one, single) < 1e-12 and distance(own, ddp) < 1e-12
    assert distance(ddp, single) > 0.01


def witness(training: Training) -> dict[str, Any]:
    """What the next step of this rank depends on, and its batch."""
    state = copy.deepcopy(training.state())
    group, = training.optimizer.param_groups
    return {"batch": next(training.batches()), "lr": training.lr(), "random": torch.get_rng_state(), "step": training.step,
            "epoch_loss": training.epoch_loss, "module": state["module"], "optimizer": state["optimizer"]["state"],
            "rest": {k: v for k, v in group.items() if k != "params"} | {"lr": None}}  # set before each step


def resumed(rank: int, words: str, at: int, folder: str, left_out: str = "") -> tuple[list[str], list[str]]:
    """What differs after ten steps, and before them, between the run that goes on and one from its checkpoint."""
    training = training_of(words)
    start = copy.deepcopy(training.state())
    training.check_replay(start)
    advance(training, at)
    state = training.state()
    if rank == 0:
        save_checkpoint(folder, training.step, state)
    undisturbed = [witness(training), advance(training, 10), values(training), torch.get_rng_state()]
    other = training_of(words)
    state = newest_checkpoint(folder)[1]
    dist.barrier()
    part, _, entry = left_out.partition(".")
    if entry:  # of a list or a dict; every rank has the same state
        state[part][int(entry) if entry.isdecimal() else entry] = start[part][int(entry) if entry.isdecimal() else entry]
    elif part:
        state[part] = start[part]
    other.check_replay(state)
    again = [witness(other), advance(other, 10), values(other), torch.get_rng_state()]
    return differing(undisturbed[0], again[0]), differing(undisturbed[1:], again[1:])


@pytest.mark.parametrize("strategy", ["single", "dataparallel"])
@pytest.mark.parametrize("at", [4, 6, 9, 12])  # in the middle of an epoch, and at its end
def test_what_is_read_from_a_checkpoint_goes_on_as_the_run_that_was_not_disturbed(alone: None, tmp_path: Path, strategy: str, at: int) -> None:
    assert resumed(0, f"{ALL} --strategy={strategy}", at, str(tmp_path)) == ([], [])


@pytest.mark.parametrize("left_out, seen", [
    ("step", "batch lr step"), ("epoch_loss", "epoch_loss"), ("module", "module"), ("optimizer", "optimizer"), ("random.0", "random")])
def test_a_state_without_one_of_its_parts_is_seen_to_go_on_otherwise(alone: None, tmp_path: Path, left_out: str, seen: str) -> None:
    before, after = resumed(0, ALL, 9, str(tmp_path), left_out)
    assert {re.match(r"\['(\w+)", place)[1] for place in before} == set(seen.split())
    assert bool(after) == (left_out != "epoch_loss")  # that is only printed


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("how", ["--strategy=own", "--strategy=ddp", "--strategy=own --model=resnet18 --width=2", "--strategy=ddp --model=resnet18 --width=2"])
def test_on_ranks_too_each_goes_on_as_if_nothing_had_been(group_of: Callable, tmp_path: Path, how: str, ranks: int) -> None:
    for at in (6, 9):
        assert group_of(ranks).run(resumed, f"{ALL} {how}", at, str(tmp_path / str(at))) == [([], [])] * ranks


@pytest.mark.parametrize("strategy", ["own", "ddp"])
def test_the_random_state_of_one_rank_is_missed_there_and_then_by_all(group_of: Callable, tmp_path: Path, strategy: str) -> None:
    (before, after), (other_before, other_after) = group_of(2).run(resumed, f"{ALL} --strategy={strategy}", 9, str(tmp_path), "random.1")
    assert (before, other_before) == ([], ["['random']"])
    assert after and other_after


def test_the_running_statistics_are_part_of_it(alone: None, tmp_path: Path) -> None:
    before, _ = resumed(0, f"{ALL} --model=resnet18 --width=2", 9, str(tmp_path), "module.1.running_mean")
    assert before == ["['module']['1.running_mean']"]


def test_an_epoch_has_every_image_once_and_each_its_own_order(alone: None) -> None:
    training, orders = training_of(""), []
    for epoch in range(3):
        training.step = epoch * training.per_epoch
        images = torch.cat([X for X, _ in training.batches()])
        orders.append(images.flatten(1).mul(torch.arange(784.0)).sum(1))
    for order in orders[1:]:
        assert order.sort()[0].equal(orders[0].sort()[0]) and not order.equal(orders[0])


def test_ranks_draw_other_flips_and_so_do_seeds_and_steps(alone: None) -> None:
    training, first = training_of("--flip"), set()
    for training.args.seed, training.rank, training.step in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)):
        training.seed_rank()
        first.add(tuple(torch.rand(4).tolist()))
    assert len(first) == 4


def without_the_discarded_backward(rank: int) -> list[bool]:
    """Whether a run that goes on from a state has the bits of the undisturbed one: with the backward, and without."""
    words, same = f"{ALL} --strategy=ddp", []
    training = training_of(words)
    training.check_replay(copy.deepcopy(training.state()))
    advance(training, 4)
    state = copy.deepcopy(training.state())
    advance(training, 10)
    for with_it in (True, False):
        other = training_of(words)
        if not with_it:
            other.args.strategy = "own"
        other.check_replay(copy.deepcopy(state))
        advance(other, 10)
        same.append(same_bits([values(training), values(other)]))
    return same


def test_of_three_ranks_ddps_buckets_have_to_be_made_anew_before_the_first_step(group_of: Callable) -> None:
    assert group_of(3).run(without_the_discarded_backward) == [[True, False]] * 3


@pytest.mark.parametrize("model", ["--model=lenet", "--model=resnet18 --width=2"])
def test_the_replay_check_leaves_the_state_as_it_was(alone: None, model: str) -> None:
    training = training_of(f"{ALL} {model}")
    advance(training, 8)
    state = copy.deepcopy(training.state())
    given = copy.deepcopy(state)
    advance(training, 2)
    training.check_replay(given)
    assert differing(given, state) == differing(training.state(), state) == []


def test_the_replay_check_finds_one_bit_that_flips_between_the_two(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    training = training_of(ALL)
    advance(training, 8)
    state, count, shard_loss = copy.deepcopy(training.state()), iter(range(9)), training.shard_loss

    def lies(*args: Any) -> torch.Tensor:
        if next(count) == 1:
            training.module.params[4].data.view(torch.int32)[3, 5] ^= 1 << 18
        return shard_loss(*args)

    monkeypatch.setattr(training, "shard_loss", lies)
    with pytest.raises(RuntimeError, match=r"rank 0 computed the gradient of update 9 twice from one state, and it differs in params"):
        training.check_replay(state)
    monkeypatch.undo()
    training.check_replay(state)
    assert differing(training.state(), state) == []
