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
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from d2lpar import trainer
from d2lpar.checkpoints import newest_checkpoint, save_checkpoint
from d2lpar.pages.kill_tests import differing
from d2lpar.scratch import distance, same_bits
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


@pytest.mark.slow
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


@pytest.mark.parametrize("ranks, how", [(3, "--strategy=own"), (3, "--strategy=ddp"), (2, "--strategy=own --model=resnet18 --width=2"),
                                        (2, "--strategy=ddp --model=resnet18 --width=2")])
def test_on_ranks_too_each_goes_on_as_if_nothing_had_been(group_of: Callable, tmp_path: Path, how: str, ranks: int) -> None:
    for at in (6, 9):
        assert group_of(ranks).run(resumed, f"{ALL} {how}", at, str(tmp_path / str(at))) == [([], [])] * ranks


@pytest.mark.parametrize("strategy", ["own", "ddp"])
def test_the_random_state_of_one_rank_is_missed_there_and_then_by_all(group_of: Callable, tmp_path: Path, strategy: str) -> None:
    (before, after), (other_before, other_after) = group_of(2).run(resumed, f"{ALL} --strategy={strategy}", 9, str(tmp_path), "random.1")
    assert (before, other_before) == ([], ["['random']"])
    assert after and other_after


@pytest.mark.slow
def test_the_running_statistics_are_part_of_it(alone: None, tmp_path: Path) -> None:
    before, _ = resumed(0, f"{ALL} --model=resnet18 --width=2", 9, str(tmp_path), "module.1.running_mean")
    assert before == ["['module']['1.running_mean']"]


def test_the_replay_check_at_the_start_is_in_no_statistics(alone: None) -> None:
    assert fit("--epochs=1 --model=resnet18 --width=2").module[1].num_batches_tracked == 6


def test_an_epoch_has_every_image_once_and_each_its_own_order(alone: None) -> None:
    training, orders = training_of(""), []
    for epoch in range(3):
        training.step = epoch * training.per_epoch
        images = torch.cat([X for X, _ in training.batches()])
        orders.append(images.flatten(1).mul(torch.arange(784.0)).sum(1))
        training.step += 4
        assert torch.cat([X for X, _ in training.batches()]).equal(images[4 * 24:])  # the rest of it
    for order in orders[1:]:
        assert order.sort()[0].equal(orders[0].sort()[0]) and not order.equal(orders[0])


def test_a_warm_up_begins_at_a_tenth_of_the_rate_and_ends_at_all_of_it(alone: None) -> None:
    for optimizer in ("sgd", "adam"):
        assert distance(trained(0, f"--optimizer={optimizer} --warmup=6", 1)[1], trained(0, f"--optimizer={optimizer} --lr=0.005", 1)[1]) < 1e-6
    training = training_of("--warmup=6")
    advance(training, 7)
    assert training.optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


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
            training.module.params[7].data.view(torch.int32)[3] ^= 1 << 20
        return shard_loss(*args)

    monkeypatch.setattr(training, "shard_loss", lies)
    with pytest.raises(RuntimeError, match=r"rank 0 computed the gradient of update 9 twice from one state, and it differs in params"):
        training.check_replay(state)
    monkeypatch.undo()
    training.check_replay(state)
    assert differing(training.state(), state) == []


@pytest.mark.parametrize("turn", [0, 1])
def test_the_replay_check_finds_nan_that_is_there_in_one_of_the_two(alone: None, monkeypatch: pytest.MonkeyPatch, turn: int) -> None:
    training = training_of(ALL)
    count, shard_loss = iter(range(9)), training.shard_loss
    monkeypatch.setattr(training, "shard_loss", lambda *args: shard_loss(*args) * (float("nan") if next(count) == turn else 1))
    with pytest.raises(RuntimeError, match="it differs in params"):
        training.check_replay(copy.deepcopy(training.state()))


def fit(words: str, *more: Any) -> Training:
    training = training_of(words, *more)
    training.fit()
    return training


@pytest.mark.parametrize("options, words", [
    ("--model=resnet18", "model was lenet and is resnet18, width was None and is 16"),
    ("--strategy=dataparallel", "strategy was single and is dataparallel, devices was None and is 2"),
    ("--lr=0.06", "lr was 0.05 and is 0.06"), ("--seed=1", "seed was 0 and is 1"), ("--flip", "flip was False and is True"),
    ("--batch-size=20", "batch_size was 24 and is 20"), ("--float64", "float64 was False and is True"),
    ("--num-train=141", r"images was 140 and is 141, data was \w{16} and is \w{16}")])
def test_the_checkpoint_of_another_training_is_refused_with_what_differs(alone: None, tmp_path: Path, options: str, words: str) -> None:
    fit(f"--epochs=1 --checkpoints={tmp_path}")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Refused, match=rf"^step-00000006-\w+.pt is of another training: {words}. Take another --checkpoints$"):
        fit(f"--epochs=1 --checkpoints={tmp_path} {options}")
    assert sorted(tmp_path.iterdir()) == before


def test_other_images_of_the_same_number_are_another_training_too(alone: None, tmp_path: Path) -> None:
    fit(f"--epochs=1 --checkpoints={tmp_path}")
    training = training_of(f"--epochs=1 --checkpoints={tmp_path}")
    training.train_set.labels[7] += 1
    training.plan = training.make_plan()
    with pytest.raises(Refused, match=r"is of another training: data was \w+ and is \w+\. Take"):
        training.fit()


def test_a_whole_file_that_no_training_has_written_is_refused(alone: None, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 3, {"w": torch.zeros(3)})
    with pytest.raises(Refused, match="step-00000003-.*is of another training: strategy was None and is single"):
        fit(f"--checkpoints={tmp_path}")


def test_one_epoch_and_then_another_are_two_and_what_is_done_is_not_done_again(alone: None, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = f"{ALL} --warmup=4"
    whole = fit(f"{words} --epochs=2 --metrics={tmp_path}/whole")
    for epochs in (1, 2, 2, 1):
        parts = fit(f"{words} --epochs={epochs} --checkpoints={tmp_path}/c --metrics={tmp_path}/parts")
    assert same_bits([values(whole), values(parts)])
    printed = capsys.readouterr().out
    assert re.findall(r"goes on from step-(\d+)-\w+.pt, (.*)", printed) == [
        ("00000006", "6 of 12 updates"), ("00000012", "12 of 12 updates"), ("00000012", "12 of 6 updates")]
    assert metrics_of(tmp_path / "parts") == metrics_of(tmp_path / "whole")
    assert [line["step"] for line in metrics_of(tmp_path / "whole")] == [1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10, 11, 12, 12]


def metrics_of(path: Path) -> list[dict]:
    """Its lines, but for the speed."""
    return [{k: v for k, v in json.loads(line).items() if k != "images_per_s"} for line in path.read_text().splitlines()]


def test_metrics_of_lost_updates_and_what_was_cut_off_are_taken_out(tmp_path: Path) -> None:
    lines = [f'{{"step": {step}, "loss": 1.5}}\n' for step in (1, 2, 3, 3, 4, 5)]
    for torn in ("", '{"step"', '{"step": 1', '{"step": 2, "loss": 1.2', "\n"):
        (path := tmp_path / "metrics").write_text("".join(lines) + torn)
        trainer.keep_metrics(str(path), 3)
        assert path.read_text() == "".join(lines[:4])
    path.write_text(lines[0].rstrip("\n"))  # whole, but for the end of the line
    trainer.keep_metrics(str(path), 9)
    assert path.read_text() == "" and [p.name for p in tmp_path.iterdir()] == ["metrics"]


def test_a_line_of_metrics_is_written_at_once(alone: None, tmp_path: Path) -> None:
    seen = []
    fit(f"--epochs=1 --metrics={tmp_path}/m", lambda: bool(seen.append(len(metrics_of(tmp_path / "m")))))
    assert seen == [0, 1, 2, 3, 4, 5]


def test_metrics_are_there_whole_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path := tmp_path / "metrics").write_text('{"step": 1}\n')

    def killed(*paths: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(InterruptedError):
        trainer.keep_metrics(str(path), 1)
    assert path.read_text() == '{"step": 1}\n'


def test_a_loss_that_is_no_number_ends_the_training_before_the_update(alone: None, tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="the loss of update . is (nan|inf), so it is not made: take a smaller --lr, or a --warmup"):
        fit(f"--lr=1e6 --save-every=1 --checkpoints={tmp_path}")
    assert newest_checkpoint(tmp_path)[1]["step"] >= 1


def test_a_checkpoint_just_before_is_no_fault_of_the_memory(alone: None, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(FloatingPointError):
            fit(f"--lr=1e6 --save-every=1 --checkpoints={tmp_path}")


def test_who_is_told_to_stop_makes_its_step_and_keeps_it(alone: None, tmp_path: Path) -> None:
    count = iter(range(99))
    with pytest.raises(Stopped, match="^told to stop: 4 of 12 updates are made, and kept$"):
        fit(f"--epochs=2 --checkpoints={tmp_path}", lambda: next(count) == 3)
    assert newest_checkpoint(tmp_path)[1]["step"] == 4
    with pytest.raises(Stopped, match="^told to stop: 1 of 12 updates are made$"):
        fit("--epochs=2", lambda: True)


def stops(rank: int, folder: str, asked: int) -> str:
    count = iter(range(99))
    try:
        fit(f"--strategy=own --epochs=2 --checkpoints={folder}", lambda: rank == asked and next(count) >= 7)
    except Stopped as why:
        return str(why)
    return ""


@pytest.mark.parametrize("asked", [0, 1])
def test_if_one_rank_is_told_to_stop_all_do_after_the_same_step(group_of: Callable, tmp_path: Path, asked: int) -> None:
    assert group_of(2).run(stops, str(tmp_path), asked) == ["told to stop: 8 of 12 updates are made, and kept"] * 2
    assert newest_checkpoint(tmp_path)[1]["step"] == 8


def is_refused(rank: int, words: str, odd: str = "") -> str:
    """What this rank is told in place of a training; `odd` are words for rank 1 alone."""
    try:
        fit(f"{words} {odd if rank == 1 else ''}")
    except Refused as why:
        return str(why)
    return ""


def test_a_path_that_cannot_be_used_is_told_to_all_before_anything_is_trained_or_lost(group_of: Callable, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("mine\n")
    (notes := tmp_path / "notes").write_text('{"step": 9, "loss": 1.5}\n{"name": 7}\n')
    folders = [file, file / "below", *["/proc"] * os.path.isdir("/proc")]
    cases = [(f"--checkpoints={path}", f"--checkpoints cannot be used: .*{path}.*") for path in folders]
    cases += [(f"--metrics={path}", f"--metrics cannot be used: .*{path}.*") for path in (tmp_path, file, file / "m", notes, os.devnull)]
    for words, told in cases:
        every = group_of(2).run(is_refused, f"--strategy=own {words}")
        assert every[0] == every[1] and re.fullmatch(told, every[0]), (words, every)
    assert file.read_text() == "mine\n" and notes.read_text().startswith('{"step": 9') and not os.path.isfile(os.devnull)
    assert sorted(tmp_path.iterdir()) == [file, notes]


def test_a_folder_that_another_training_writes_into_is_refused_and_left_as_it_is(alone: None, tmp_path: Path) -> None:
    told = []

    def ask_for_another() -> bool:
        (tmp_path / "unfinished").touch()
        told.append(is_refused(0, f"--checkpoints={tmp_path}"))
        (tmp_path / "unfinished").unlink()
        return True

    with pytest.raises(Stopped):
        fit(f"--epochs=2 --checkpoints={tmp_path}", ask_for_another)
    assert told == [f"--checkpoints cannot be used: another training writes into {tmp_path}"]
    assert fit(f"--epochs=2 --checkpoints={tmp_path}").step == 12  # it is free again as soon as the first one has ended


def fits(rank: int, words: str) -> list[torch.Tensor]:
    return values(fit(words))


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_goes_on_says_so_and_differs_by_rounding(alone: None, group_of: Callable, tmp_path: Path,
                                                                         capsys: pytest.CaptureFixture, ranks: int) -> None:
    words = "--float64 --optimizer=adam --lr=0.002 --warmup=4"
    group_of(2).run(fits, f"{words} --strategy=ddp --epochs=1 --checkpoints={tmp_path}")
    every = group_of(ranks).run(fits, f"{words} --strategy=ddp --epochs=2 --checkpoints={tmp_path}")
    assert re.search(rf"ddp, {ranks} ranks?: goes on from step-00000006-\w+.pt, 6 of 12 updates; other bits than undisturbed: "
                     rf"ranks was 2 and is {ranks}\n", capsys.readouterr().out)
    assert same_bits(every) and distance(every[0], values(fit(f"{words} --epochs=2"))) < 1e-12


@pytest.mark.parametrize("odd, words", [("--lr=0.1", "lr was 0.05 and is 0.1"), ("--save-every=3", "save_every was None and is 3"),
                                        ("--num-train=150", r"num_train was 140 and is 150, images was .*, data was .*")])
def test_a_rank_that_was_started_otherwise_is_told_to_all(group_of: Callable, tmp_path: Path, odd: str, words: str) -> None:
    every = group_of(2).run(is_refused, f"--strategy=ddp --checkpoints={tmp_path}", odd)
    assert all(re.fullmatch(f"rank 1 was started otherwise than rank 0: {words}", said) for said in every), every


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """What `python -m d2lpar train` says in place of training, in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def command(words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            trainer.command.__wrapped__(words.split(), os.getppid())
        return ended.value.code

    yield command
    for number, handler in before.items():
        signal.signal(number, handler)
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("options, words", [
    ("--strategy=ddp", "ddp trains on ranks: torchrun --standalone --nproc-per-node=2 -m d2lpar train --strategy ddp ..."),
    ("--strategy=own", "own trains on ranks: torchrun"), ("--devices=2", "--devices needs --strategy dataparallel"),
    ("--width=8", "--width needs --model resnet18"), ("--save-every=8", "--save-every needs --checkpoints DIR"),
    ("--epochs=0", "--epochs must be at least 1, got 0"), ("--batch-size=-1", "--batch-size must be at least 1, got -1"),
    ("--lr=nan", "--lr and --warmup must be finite"), ("--timeout=inf", "both at most 1000000000, got"), ("--timeout=1e300", "--timeout above 0"),
    ("--seed=-1", "--seed not negative"), ("--seed=10000000000", "got 0.05, 0, 120 and 10000000000"), ("--warmup=-1", "not negative"), ("--lr=much", "argument --lr: invalid float value: 'much'; --help lists all options"),
    ("--speed=9", "unrecognized arguments: --speed=9"), ("--model=vgg", "argument --model: invalid choice: 'vgg'"),
    ("--num-train=70000", "num_train is 70,000, but Fashion-MNIST has only 60,000 training images"),
    ("--num-train=9 --batch-size=8 --strategy=dataparallel", "a minibatch has 1 examples, fewer than the 2 that share it"),
    ("--num-train=9 --batch-size=8 --epochs=2 --warmup=5", "a warm-up of 5 updates is longer than the training, which has 4")])
def test_what_cannot_be_trained_is_refused_in_words(command: Callable, options: str, words: str) -> None:
    assert words in command(options)


@pytest.mark.parametrize("variables, words", [
    ({"WORLD_SIZE": "2"}, "single is one process, and torchrun has started 2: leave torchrun out, or take --strategy ddp"),
    ({"TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_USE_AGENT_STORE": "True"}, "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 before torchrun")])
def test_what_torchrun_cannot_do_is_refused_in_words(command: Callable, monkeypatch: pytest.MonkeyPatch, variables: dict, words: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert words in command("")


def test_ranks_without_a_gpu_of_their_own_are_refused(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert command("") == "2 ranks and 1 GPUs on this machine: set CUDA_VISIBLE_DEVICES= to train on the CPU"


def test_data_that_cannot_be_used_are_refused_in_words(command: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("D2LPAR_FULL", "1")
    monkeypatch.setenv("D2LPAR_DATA", str(tmp_path))
    assert str(tmp_path) in command("")


def test_its_help_names_every_option_and_a_command_that_torchrun_takes(command: Callable, capsys: pytest.CaptureFixture) -> None:
    from torch.distributed.run import parse_args

    assert command("--help") == 0
    printed = capsys.readouterr().out
    shown, = re.findall(r"torchrun (.* \\\n.*)", printed)
    words = shlex.split(shown.replace("\\\n", ""))
    ours = parse_args(words)
    assert (ours.nproc_per_node, ours.max_restarts, ours.module, ours.training_script) == ("2", 3, True, "d2lpar")
    parser = argparse.ArgumentParser()
    trainer.add_options(parser)
    parser.parse_args(words[words.index("train") + 1:])
    assert max(map(len, printed.splitlines())) < 120


def test_the_second_ctrl_c_is_obeyed_at_once(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    came = []
    monkeypatch.setattr(Training, "fit", lambda self: [came.append(signal.raise_signal(signal.SIGINT)) for _ in range(3)])
    with pytest.raises(KeyboardInterrupt):
        command(SMALL)
    assert came == [None]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_alone_it_trains_writes_and_stops_at_a_signal_with_a_status_of_its_own(tmp_path: Path, ctrl_c_is_obeyed: None, how: int) -> None:
    words = f"-m d2lpar train {SMALL} --epochs=400 --checkpoints={tmp_path}/c --metrics={tmp_path}/m"
    with subprocess.Popen([sys.executable, *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}) as running:
        for line in running.stdout:
            if line.startswith("epoch  1: "):
                running.send_signal(how)
        errors = running.stderr.read()
    assert (running.returncode, errors) == (trainer.STOPPED, ""), errors
    made = int(re.fullmatch(r"told to stop: (\d+) of 2400 updates are made, and kept\n", line)[1])
    assert newest_checkpoint(tmp_path / "c")[1]["step"] == metrics_of(tmp_path / "m")[-1]["step"] == made >= 6
