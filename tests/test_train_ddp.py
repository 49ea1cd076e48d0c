"""Tests of d2lpar/train_ddp.py: any number of ranks trains the same network, and what goes on ends with the same bits."""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from filelock import FileLock
from torch import nn
from torch.distributed.run import parse_args as torchrun_options
from torch.nn import functional as F

from d2lpar import train_ddp as script
from d2lpar.checkpoints import checkpoints, digest_of, newest_checkpoint, save_checkpoint
from d2lpar.data import load_data_fashion_mnist
from d2lpar.pages.kill_tests import differing
from d2lpar.scratch import distance, same_bits

SMALL = "--batch-size=24 --epochs=2 --save-every=5"  # twenty updates
LAST = 20


def small_data(folder: str | None = None) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(data.images, data.labels) for data in load_data_fashion_mnist(1, 245, 101)]


class Plain(nn.Module):
    """In float64, and without what sees or draws differently on ranks: no BatchNorm, no dropout; one parameter is frozen, one tied."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.hidden, self.last = nn.Linear(784, 16), nn.Linear(16, 16), nn.Linear(16, 10)
        self.tied = self.hidden.weight
        self.first.bias.requires_grad_(False)
        self.double()

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.first(X.double().flatten(1)))
        return self.last(F.relu(self.hidden(h)) @ self.tied)


def plain_net() -> Plain:
    """One that is different on each rank, until DDP gives all of them rank 0's."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(rank)
    return Plain()


PLAIN = {"make_net": plain_net, "augment": lambda X: X}


class Seen(NamedTuple):
    """What a rank saw of a run: the parameters and buffers after each update, and how it ended."""

    ended: Any  # True, False if it was told to stop, or the words of a refusal
    losses: list[float]
    params: list[list[torch.Tensor]]
    random: torch.Tensor


def trained(rank: int, words: str, stop_after: int | None = None, changes: dict[str, Any] | None = None, odd: dict[int, str] | None = None) -> Seen:
    """Train on this rank with small data; rank 1, or the only one, is told to stop, and some ranks have other options."""
    losses: list[float] = []
    params: list[list[torch.Tensor]] = []
    update, told = script.update, min(1, dist.get_world_size() - 1)

    def seen_update(net: nn.Module, *args: Any) -> Any:
        result = update(net, *args)
        losses.append(result[0])
        params.append([p.detach().clone() for p in net.parameters()])
        return result

    with ExitStack() as stack:
        for name, value in ({"load_data": small_data, "update": seen_update} | (changes or {})).items():
            stack.enter_context(mock.patch.object(script, name, value))
        try:
            args = script.read_options(f"{SMALL} {words} {(odd or {}).get(rank, '')}".split())
            ended = script.fit(args, torch.device("cpu"), lambda: rank == told and len(params) + 1 == stop_after)
        except script.Refused as why:
            ended = str(why)
    return Seen(ended, losses, params, torch.get_rng_state())


def narrow_net() -> nn.Sequential:
    """The script's kinds of layers, and few channels."""
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(4),
                         nn.Flatten(), nn.Dropout(0.25), nn.Linear(196, 10))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is rank 0 of 1, on the CPU, and no process group is left; its network is narrow."""
    monkeypatch.setattr(script, "make_net", narrow_net)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert script.join() == torch.device("cpu")
    yield
    dist.destroy_process_group()


# the same network


def single_device(batch_size: int, clip: float | None, seed: int) -> tuple[list[float], list[list[torch.Tensor]]]:
    """The reference: plain PyTorch on a single device, with nothing of the script's."""
    (images, labels), _ = small_data()
    torch.manual_seed(0)
    net, losses, params = Plain(), [], []
    optimizer = torch.optim.AdamW(net.parameters())
    for step in range(2 * (245 // batch_size)):
        epoch, place = divmod(step, 245 // batch_size)
        order = torch.randperm(245, generator=torch.Generator().manual_seed(10**6 * seed + epoch))
        chosen = order[batch_size * place:batch_size * (place + 1)]
        optimizer.param_groups[0]["lr"] = 0.002 * min(1, (step + 1) / 20)
        loss = F.cross_entropy(net(images[chosen] / 255), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
        params.append([p.detach().clone() for p in net.parameters()])
    return losses, params


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("batch_size, clip, seed, accumulate", [(24, None, 0, 1), (25, 0.1, 3, 2), (23, None, 1, 3)])
def test_one_two_and_three_ranks_train_the_network_of_a_single_device(group_of: Callable, tmp_path: Path, ranks: int, batch_size: int,
                                                                     clip: float | None, seed: int, accumulate: int) -> None:
    words = f"--batch-size={batch_size} --seed={seed} --accumulate={accumulate} --checkpoints={tmp_path}" + f" --clip={clip}" * bool(clip)
    losses, params = single_device(batch_size, clip, seed)
    every = group_of(ranks).run(trained, words, None, PLAIN)
    assert [seen.ended for seen in every] == [True] * ranks
    for seen in every:
        assert seen.losses == pytest.approx(losses, rel=1e-12) and len(losses) == len(seen.params)
        for i, (ours, theirs) in enumerate(zip(seen.params, params)):
            assert distance(ours, theirs) < 1e-12, i
    for i in range(len(losses)):
        assert same_bits([seen.params[i] for seen in every])
    assert distance(params[0], params[-1]) > 0.01  # it has moved


def test_with_batchnorm_dropout_and_flips_all_ranks_have_the_same_bits_after_each_update(group_of: Callable, tmp_path: Path) -> None:
    every = group_of(3).run(trained, f"--checkpoints={tmp_path}")
    for i in range(LAST):
        assert same_bits([seen.params[i] for seen in every])
    assert len({bytes(seen.random.numpy()) for seen in every}) == 3  # each draws its own


def test_with_batchnorm_dropout_and_flips_the_first_update_begins_at_the_start(group_of: Callable, tmp_path: Path) -> None:
    group_of(2).run(trained, f"--checkpoints={tmp_path}", 1)
    _, state = newest_checkpoint(tmp_path)
    assert state and state["step"] == state["net"]["1.num_batches_tracked"] == 1


def shards(rank: int, words: str, steps: int) -> list[list[torch.Tensor]]:
    """Of each of some minibatches the images that this rank gets, as numbers in the training set."""
    numbers = torch.arange(245).view(-1, 1, 1, 1)
    with mock.patch.object(script, "augment", lambda X: X * 255):
        return [script.minibatch((numbers, numbers.view(-1)), step, script.read_options(words.split())) for step in range(steps)]


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_epoch_has_no_example_twice_and_epochs_and_seeds_have_their_own_orders(group_of: Callable, ranks: int) -> None:
    orders = []
    for seed in (0, 1, 2):
        every = group_of(ranks).run(shards, f"--batch-size=25 --seed={seed}", 27)
        for steps in zip(*every):
            assert [len(y) for _, y in steps] == ([25] if ranks == 1 else [9, 8, 8])
            assert all(X.flatten().round().long().equal(y) for X, y in steps)
        for epoch in range(3):
            order = torch.cat([y for steps in zip(*every) for _, y in steps][9 * ranks * epoch:9 * ranks * (epoch + 1)])
            assert len(order.unique()) == 225
            orders.append(order.tolist())
    assert len({tuple(order) for order in orders}) == 9


def test_images_are_mirrored_each_by_a_coin_of_its_own() -> None:
    torch.manual_seed(0)
    X = torch.rand(200, 1, 4, 4)
    seen = script.augment(X)
    mirrored = [not bool(a.equal(b)) for a, b in zip(seen, X)]
    assert 70 < sum(mirrored) < 130
    assert all(a.equal(b.flip(2) if is_mirrored else b) for a, b, is_mirrored in zip(seen, X, mirrored))


def test_the_rate_warms_up_and_then_stays() -> None:
    args = script.read_options(["--lr=0.1"])
    assert [script.learning_rate(step, args) for step in (0, 9, 19, 20, 1000)] == pytest.approx([0.005, 0.05, 0.1, 0.1, 0.1])


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_test_example_counts_once_and_rank_0s_buffers_count(group_of: Callable, ranks: int) -> None:
    X, y = small_data()[1]
    every = group_of(ranks).run(evaluated)
    torch.manual_seed(0)
    net = script.make_net()
    for _ in range(3):
        net(torch.rand(8, 1, 28, 28))
    with torch.no_grad():
        scores = net.eval()(X / 255)
    for loss, accuracy, training, digest in every:
        assert loss == pytest.approx(F.cross_entropy(scores, y).item(), rel=1e-5)
        assert accuracy == (scores.argmax(1) == y).sum().item() / 101 and training
        assert digest == digest_of(list(net.buffers()))


def evaluated(rank: int) -> Any:
    torch.manual_seed(0)
    net = script.make_net()
    if rank == 0:
        for _ in range(3):
            net(torch.rand(8, 1, 28, 28))
    return *script.evaluate(net, small_data()[1], torch.device("cpu")), net.training, digest_of(list(net.buffers()))


def test_bfloat16_is_for_computing_and_the_weights_are_float32(alone: None, tmp_path: Path) -> None:
    exact = trained(0, f"--checkpoints={tmp_path}/exact")
    rounded = trained(0, f"--checkpoints={tmp_path}/rounded --bf16")
    for p in rounded.params[-1]:
        assert p.dtype == torch.float32
    assert distance(rounded.params[0], exact.params[0]) > 1e-4 and distance(rounded.params[-1], exact.params[-1]) < 0.5
    assert any(not p.equal(p.bfloat16().float()) for p in rounded.params[-1])


# the same bits


WORDS = ("--bf16", "--accumulate=2 --clip=0.5 --batch-size=23", "")


@pytest.mark.parametrize("ranks, words", [pytest.param(ranks, words, marks=[pytest.mark.weekly] * ((ranks, words) != (2, WORDS[1])))
                                          for ranks in (1, 2, 3) for words in WORDS])
def test_a_run_that_was_stopped_goes_on_with_the_bits_of_one_that_was_not(group_of: Callable, tmp_path: Path, ranks: int, words: str,
                                                                         capsys: pytest.CaptureFixture) -> None:
    whole = group_of(ranks).run(trained, f"{words} --checkpoints={tmp_path}/whole")
    for at in (7, 10):  # in the middle of an epoch and at its end
        folder = tmp_path / str(at)
        begun = group_of(ranks).run(trained, f"{words} --checkpoints={folder}", at)
        told = f"stopped: {at} of 20 updates done and saved; the same command resumes the run\n"
        assert (folder / "stopped").read_text() == told and [seen.ended for seen in begun] == [False] * ranks
        ended = group_of(ranks).run(trained, f"{words} --checkpoints={folder}")
        assert not (folder / "stopped").exists()
        for first, second, all_of_it in zip(begun, ended, whole):
            assert second.ended and (len(first.params), len(second.params)) == (at, LAST - at)
            assert first.losses + second.losses == all_of_it.losses
            assert same_bits([second.params[-1], all_of_it.params[-1]]) and second.random.equal(all_of_it.random)
        assert differing(newest_checkpoint(folder)[1], newest_checkpoint(tmp_path / "whole")[1]) == []
        assert [path.name for path in checkpoints(folder)] == [path.name for path in checkpoints(tmp_path / "whole")]
        assert metrics_of(folder) == metrics_of(tmp_path / "whole")


def metrics_of(folder: Path) -> list[dict]:
    """Its lines."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_unused_backward(rank: int, words: str) -> Seen:
    """Go on without the backward pass that nobody uses."""
    backward, calls = script.backward, []

    def first_is_left_out(*args: Any) -> float:
        calls.append(args)
        return backward(*args) if len(calls) > 1 else 0.0

    return trained(rank, words, None, {"backward": first_is_left_out})


def test_on_three_ranks_that_takes_a_backward_pass_that_nobody_uses(group_of: Callable, tmp_path: Path) -> None:
    whole = group_of(3).run(trained, f"--checkpoints={tmp_path}/whole")
    group_of(3).run(trained, f"--checkpoints={tmp_path}/parts", 7)
    ended = group_of(3).run(without_unused_backward, f"--checkpoints={tmp_path}/parts")
    assert ended[0].losses[0] == whole[0].losses[7] and not same_bits([ended[0].params[0], whole[0].params[7]])
    assert distance(ended[0].params[0], whole[0].params[7]) < 1e-3  # by rounding, and Adam


PARTS = [("step",), ("optimizer", "state"), ("net", "0.weight"), ("net", "1.running_mean"), ("net", "1.num_batches_tracked"),
         ("random", 0), ("random", 1)]


@pytest.fixture(scope="module")
def three_states(group_of: Callable, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], list[dict[str, Any]]]:
    """Copies of the states after two updates, after seven, and at the end; the runs are made once."""

    @cache
    def made() -> list[dict[str, Any]]:
        states = []
        for stop in (2, 7, None):
            folder = tmp_path_factory.mktemp("state")
            group_of(2).run(trained, f"--checkpoints={folder}", stop)
            states.append(newest_checkpoint(folder)[1])
        return states

    return lambda: copy.deepcopy(made())


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_state_that_lacks_one_of_its_parts_ends_differently(group_of: Callable, three_states: Callable, tmp_path: Path, part: tuple) -> None:
    start, state, whole = three_states()
    old, place = start, state
    for name in part[:-1]:
        old, place = old[name], place[name]
    place[part[-1]] = old[part[-1]]
    save_checkpoint(tmp_path, state["step"], state)
    group_of(2).run(trained, f"--checkpoints={tmp_path}")
    assert differing(newest_checkpoint(tmp_path)[1], whole) != []


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_different_number_of_ranks_goes_on_says_so_and_differs_by_rounding(group_of: Callable, tmp_path: Path, capsys: pytest.CaptureFixture,
                                                                             ranks: int) -> None:
    group_of(2).run(trained, f"--checkpoints={tmp_path}", 7, PLAIN)
    capsys.readouterr()
    every = group_of(ranks).run(trained, f"--checkpoints={tmp_path}", None, PLAIN)
    assert re.search(rf"^rank 0: {ranks} ranks?: resuming from step-00000007-\w{{16}}.pt, 7 of 20 updates done; different bits from an uninterrupted run: "
                     rf"ranks was 2 and is now {ranks}$", capsys.readouterr().out, re.M)
    _, params = single_device(24, None, 0)
    assert all(distance(seen.params[-1], params[-1]) < 1e-12 for seen in every)
    assert len(newest_checkpoint(tmp_path)[1]["random"]) == ranks


def test_ranks_that_are_others_draw_numbers_of_their_own(group_of: Callable, tmp_path: Path) -> None:
    group_of(2).run(trained, f"--checkpoints={tmp_path}", 7)
    every = group_of(3).run(trained, f"--checkpoints={tmp_path}", 1)
    states = [seen.random for seen in every] + newest_checkpoint(tmp_path)[1]["random"][0]
    assert len({bytes(state.numpy()) for state in states}) == 3


@pytest.mark.parametrize("what, patched, words", [
    ("torch.backends.cpu.get_cpu_capability", "DEFAULT", r"cpu was \w+ and is now DEFAULT"),
    ("torch.get_num_threads", 77, r"threads was \d+ and is now 77"), ("torch.__version__", "9.9", r"torch was \S+ and is now 9.9")])
def test_other_threads_another_instruction_set_and_another_pytorch_are_told_as_different_bits(
        alone: None, tmp_path: Path, capsys: pytest.CaptureFixture, what: str, patched: Any, words: str) -> None:
    trained(0, f"--checkpoints={tmp_path}", 3)
    assert "different bits" not in capsys.readouterr().out
    with mock.patch(what, patched if what.endswith("__") else lambda: patched):
        assert trained(0, f"--checkpoints={tmp_path}").ended is True
    assert re.search(f"^1 rank: resuming from .*, 3 of 20 updates done; different bits from an uninterrupted run: {words}$", capsys.readouterr().out, re.M)


def test_an_epoch_more_goes_on_and_what_is_done_is_not_done_again(alone: None, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    whole, printed = trained(0, f"--checkpoints={tmp_path}/whole"), []
    printed.append(capsys.readouterr().out.splitlines()[-1])
    for epochs, updates in ((1, 10), (2, 10), (2, 0), (1, 0)):
        seen = trained(0, f"--checkpoints={tmp_path}/parts --epochs={epochs}")
        assert seen.ended is True and len(seen.losses) == updates
        printed.append(capsys.readouterr().out.splitlines()[-1])
    assert printed[0] == printed[2] == printed[3] == printed[4] != printed[1]
    _, state = newest_checkpoint(tmp_path / "parts")
    assert printed[0] == f"parameters: {digest_of(state['net'])}"
    assert same_bits([whole.params[-1], seen_params(state)])
    assert metrics_of(tmp_path / "parts") == metrics_of(tmp_path / "whole")
    assert [line["step"] for line in metrics_of(tmp_path / "whole")[1:]] == [*range(1, 11), 10, *range(11, 21), 20]


def seen_params(state: dict) -> list[torch.Tensor]:
    """The parameters in a checkpoint, in their order."""
    return [state["net"][name] for name, _ in script.make_net().named_parameters()]


def test_each_rank_says_its_process_and_the_first_line_says_where_it_begins(group_of: Callable, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pids = group_of(2).run(run_and_pid, f"--checkpoints={tmp_path}")
    printed = capsys.readouterr().out
    for rank, pid in enumerate(pids):
        assert f"rank {rank}: process {pid} on cpu\n" in printed
    assert "2 ranks: starting, 0 of 20 updates done\n" in printed and re.search(r"^rank 0: epoch 2: test loss \d\.\d{4}, test accuracy 0\.\d{3}, [\d,]+ images/s$", printed, re.M)
    assert printed.count("parameters: ") == 1


def run_and_pid(rank: int, words: str) -> int:
    trained(rank, words)
    return os.getpid()


# what is refused


def refused(rank: int, words: str, odd: dict[int, str] | None = None, changes: dict[str, Any] | None = None) -> Any:
    seen = trained(rank, words, None, changes, odd)
    return seen.ended


@pytest.mark.parametrize("options, words", [
    ("--lr=0.06", "lr was 0.002 and is now 0.06"), ("--seed=1", "seed was 0 and is now 1"), ("--batch-size=20", "batch_size was 24 and is now 20"),
    ("--accumulate=2", "accumulate was 1 and is now 2"), ("--clip=1", "clip was None and is now 1.0"), ("--bf16", "bf16 was False and is now True")])
def test_the_checkpoint_of_a_different_run_is_refused_with_what_differs(alone: None, tmp_path: Path, options: str, words: str) -> None:
    trained(0, f"--checkpoints={tmp_path}", 5)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    told = trained(0, f"--checkpoints={tmp_path} {options}").ended
    assert re.fullmatch(rf"step-00000005-\w+.pt belongs to a different run: {words}. Choose a different folder for --checkpoints", told)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def other_labels(folder: None) -> Any:
    (X, y), test = small_data()
    y[7] += 1
    return [(X, y), test]


def test_so_is_one_of_different_data_or_of_a_different_network(alone: None, tmp_path: Path) -> None:
    trained(0, f"--checkpoints={tmp_path}", 5)
    told = trained(0, f"--checkpoints={tmp_path}", None, {"load_data": other_labels}).ended
    assert re.search(r"belongs to a different run: data was \w{16} and is now \w{16}\.", told)
    told = trained(0, f"--checkpoints={tmp_path}", None, {"make_net": Plain}).ended
    assert re.search(r"belongs to a different run: network was \w{16} and is now \w{16}\.", told)


def test_a_whole_file_that_no_run_has_written_is_refused(alone: None, tmp_path: Path) -> None:
    for state in ({"w": torch.zeros(3)}, [1, 2]):
        save_checkpoint(tmp_path, 3, state)
        assert re.search("step-00000003-.*belongs to a different run: batch_size was None and is now 24", trained(0, f"--checkpoints={tmp_path}").ended)


def test_a_broken_checkpoint_is_named_and_the_one_before_is_used(alone: None, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    whole = trained(0, f"--checkpoints={tmp_path}/whole")
    trained(0, f"--checkpoints={tmp_path}/parts", 12)
    _, newest = checkpoints(tmp_path / "parts")
    newest.write_bytes(newest.read_bytes()[:-100])
    seen = trained(0, f"--checkpoints={tmp_path}/parts")
    assert same_bits([seen.params[-1], whole.params[-1]]) and len(seen.params) == 10
    printed = capsys.readouterr().out
    assert f"{newest.name} is not whole: its digest is unknown" in printed and "resuming from step-00000010-" in printed
    assert metrics_of(tmp_path / "parts") == metrics_of(tmp_path / "whole")


@pytest.mark.parametrize("odd, words", [("--lr=0.1", "lr is 0.1, but 0.002 on rank 0"), ("--save-every=3", "save_every is 3, but 5 on rank 0"),
                                        ("--epochs=3 --bf16", "bf16 is True, but False on rank 0, epochs is 3, but 2 on rank 0")])
def test_a_rank_that_was_started_differently_is_told_to_all(group_of: Callable, tmp_path: Path, odd: str, words: str) -> None:
    every = group_of(2).run(refused, f"--checkpoints={tmp_path}/c", {1: odd})
    assert every == [f"rank 1: {words}"] * 2 and not (tmp_path / "c").exists()


def no_data_on_rank_1(folder: None) -> Any:
    if dist.get_rank() == 1:
        raise RuntimeError("Dataset not found.\n You can  download it")
    return small_data()


def test_data_that_one_rank_lacks_are_told_to_all(group_of: Callable, tmp_path: Path) -> None:
    every = group_of(2).run(refused, f"--checkpoints={tmp_path}/c", None, {"load_data": no_data_on_rank_1})
    assert every == ["rank 1: Dataset not found. You can download it"] * 2 and not (tmp_path / "c").exists()


def test_a_minibatch_that_leaves_a_rank_or_a_backward_pass_without_an_example_is_refused(group_of: Callable, tmp_path: Path) -> None:
    for words, least in (("--batch-size=1", 2), ("--batch-size=5 --accumulate=3", 6), ("--batch-size=246", 2)):
        every = group_of(2).run(refused, f"--checkpoints={tmp_path} {words}")
        got = re.search(r"size=(\d+)", words)[1]
        assert every == [f"rank 0: --batch-size must be at least {least}, one example per rank and backward pass, and at most the number of training "
                         f"examples, 245; it is {got}"] * 2
    assert group_of(2).run(refused, f"--checkpoints={tmp_path} --batch-size=6 --accumulate=3 --epochs=1") == [True] * 2


def test_a_path_that_cannot_be_used_is_told_to_all_before_anything_is_trained_or_lost(group_of: Callable, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("mine\n")
    for path in [file, file / "below", *["/proc/c"] * os.path.isdir("/proc")]:
        every = group_of(2).run(refused, f"--checkpoints={path}")
        assert every[0] == every[1] and re.fullmatch(f"the checkpoint folder cannot be used: .*{path}.*", every[0]), every
    assert file.read_text() == "mine\n" and list(tmp_path.iterdir()) == [file]


def test_a_folder_that_a_run_writes_into_is_refused_to_another_and_free_as_soon_as_it_ends(group_of: Callable, tmp_path: Path) -> None:
    with FileLock(tmp_path / "lock"):
        assert group_of(2).run(refused, f"--checkpoints={tmp_path}") == [f"another run is writing to {tmp_path}"] * 2
    assert list(tmp_path.iterdir()) == [tmp_path / "lock"]
    assert group_of(2).run(is_locked_while_it_trains, f"--checkpoints={tmp_path}") == [True] * 2
    assert group_of(2).run(refused, f"--checkpoints={tmp_path}") == [True] * 2


def is_locked_while_it_trains(rank: int, words: str) -> bool:
    folder, seen, write = Path(words.partition("=")[2]), [], script.write

    def look(*args: Any, **line: Any) -> None:
        lock = FileLock(folder / "lock", timeout=0)
        try:
            lock.acquire()
            lock.release()
            seen.append(False)
        except TimeoutError:
            seen.append(True)
        write(*args, **line)

    ended = trained(rank, words, None, {"write": look}).ended
    return ended is True and len(seen) == 22 and all(seen)


def lost(rank: int, words: str, how: str) -> Any:
    """How a run ends whose folder is lost after its seventh update; it saves every five."""
    folder, update, calls = Path(words.partition("=")[2]), script.update, []

    def lose(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 7 and rank == 0:
            if how == "moved":
                folder.rename(folder.with_name("moved"))
            elif how.startswith("deleted"):
                shutil.rmtree(folder)
            else:
                (folder / how).unlink()
            if how == "deleted, and another run writes there":
                folder.mkdir()
                for name in ("lock", "metrics.jsonl"):
                    (folder / name).write_text("another run's")
        return update(*args)

    return trained(rank, words, None, {"update": lose}).ended, len(calls)


@pytest.mark.parametrize("how", ["deleted", pytest.param("moved", marks=pytest.mark.weekly), "lock",
                                 pytest.param("metrics.jsonl", marks=pytest.mark.weekly), "deleted, and another run writes there"])
def test_a_run_that_loses_its_folder_says_so_and_does_not_go_on(group_of: Callable, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "c"
    every = group_of(2).run(lost, f"--checkpoints={folder}", how)
    told = f"{folder} or files in it were deleted, moved or replaced while this run was using them: update 10 was not saved"
    assert every == [(told, 10)] * 2
    if folder.exists():
        assert all("step-00000010" not in path.name for path in folder.iterdir())
        assert "another" not in how or {path.read_text() for path in folder.iterdir()} == {"another run's"}
    assert folder.exists() == (how not in ("deleted", "moved"))


def full_disk(*args: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_told_to_all_in_words_and_the_checkpoint_before_stays(group_of: Callable, tmp_path: Path) -> None:
    group_of(2).run(trained, f"--checkpoints={tmp_path}", 5)
    before = [path.name for path in checkpoints(tmp_path)]
    every = group_of(2).run(refused, f"--checkpoints={tmp_path}", None, {"save_checkpoint": full_disk})
    assert every == ["the checkpoint folder cannot be used: [Errno 28] No space left on device"] * 2
    assert [path.name for path in checkpoints(tmp_path)] == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")
def test_so_is_one_that_is_full_for_the_metrics() -> None:
    with open("/dev/full", "a", 1) as metrics, pytest.raises(script.Refused, match="the metrics cannot be written: .*No space"):
        try:
            script.write(metrics, step=1)
        finally:
            os.dup2(os.open(os.devnull, os.O_WRONLY), metrics.fileno())  # or closing it fails, too


def test_metrics_of_a_different_run_or_of_something_else_are_refused_and_stay(alone: None, tmp_path: Path) -> None:
    trained(0, f"--checkpoints={tmp_path}")
    for path in checkpoints(tmp_path):
        path.unlink()
    of_run = (file := tmp_path / "metrics.jsonl").read_text()
    assert trained(0, f"--checkpoints={tmp_path} --seed=1").ended == f"{file} belongs to a different run, or to something else"
    assert file.read_text() == of_run
    file.write_text("mine\n")
    assert trained(0, f"--checkpoints={tmp_path}").ended == f"{file} belongs to a different run, or to something else"
    assert file.read_text() == "mine\n" and not (tmp_path / "metrics.unfinished").exists()


def test_metrics_of_lost_updates_and_what_was_cut_off_are_taken_out(alone: None, tmp_path: Path) -> None:
    trained(0, f"--checkpoints={tmp_path}/whole")
    for torn in ("", '{"step"', '{"step": 11', '{"step": 12, "loss": 1.2'):
        shutil.copytree(tmp_path / "whole", folder := tmp_path / f"torn {len(torn)}")
        checkpoints(folder)[-1].unlink()  # step 20; that of 15 stays
        with open(folder / "metrics.jsonl", "a") as metrics:
            metrics.write(torn)
        script.open_folder(folder, FileLock(folder / "lock"), newest_checkpoint(folder)[1]["plan"])
        assert metrics_of(folder) == [line for line in metrics_of(tmp_path / "whole") if line.get("step", 0) <= 15]


def test_a_line_of_metrics_is_written_at_once(alone: None, tmp_path: Path) -> None:
    seen, update = [], script.update

    def look(*args: Any) -> Any:
        seen.append(len(metrics_of(tmp_path)))
        return update(*args)

    trained(0, f"--checkpoints={tmp_path} --epochs=1", None, {"update": look})
    assert seen == list(range(1, 11))


def nan_in_one_pixel(folder: None) -> Any:
    (X, y), test = small_data()
    X = X.float()
    X[script_order()[24 * 6], 0, 3, 4] = float("nan")  # of the seventh minibatch, rank 0's shard
    return [(X, y), test]


def script_order() -> list[int]:
    return torch.randperm(245, generator=torch.Generator().manual_seed(0)).tolist()


def test_nan_on_one_rank_is_refused_by_all_before_the_update_and_before_it_is_saved(group_of: Callable, tmp_path: Path) -> None:
    every = group_of(2).run(trained, f"--checkpoints={tmp_path}", None, {"load_data": nan_in_one_pixel})
    for seen in every:
        assert seen.ended.startswith("update 7 was not applied: its loss is nan, and the norm of its gradient is ")
        assert len(seen.params) == 6
    assert newest_checkpoint(tmp_path)[1]["step"] == 5 and len(metrics_of(tmp_path)) == 7


class Overflows(Plain):
    """The loss is right, and its gradient is not."""

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        scores = super().forward(X)
        if scores.requires_grad:
            scores.register_hook(lambda g: g * float("inf"))
        return scores


def test_so_is_a_gradient_that_is_not_finite(alone: None, tmp_path: Path) -> None:
    for clip in ("", "--clip=1"):
        told = trained(0, f"--checkpoints={tmp_path} {clip}", None, {"make_net": Overflows}).ended
        assert re.match(r"update 1 was not applied: its loss is 2\.\d+, and the norm of its gradient is (nan|inf). Try a smaller --lr or --clip", told)
        (tmp_path / "metrics.jsonl").unlink()
    assert checkpoints(tmp_path) == []


# its command line


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """How `python train_ddp.py` with these words ends, in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(script, "load_data", small_data)

    def command(words: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["train_ddp.py", *words.split()])
        with pytest.raises(SystemExit) as ended:
            script.main.__wrapped__()
        return ended.value.code

    yield command
    for number, handler in before.items():
        signal.signal(number, handler)
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("options, words", [
    ("--epochs=0", "--epochs must be above 0, got 0"), ("--batch-size=-1", "--batch-size must be above 0, got -1"),
    ("--save-every=0", "--save-every must be above 0, got 0"), ("--accumulate=0", "--accumulate must be above 0"), ("--lr=nan", "--lr must be above 0, got nan"),
    ("--lr=inf", "--lr must be above 0, got inf"), ("--clip=0", "--clip must be above 0, got 0.0"), ("--seed=-1", "--seed must be from 0 to 1000000, got -1"),
    ("--lr=much", "argument --lr: invalid float value: 'much'; --help lists all options"), ("--speed=9", "unrecognized arguments: --speed=9"),
    ("--batch-size=999", "and at most the number of training examples, 245; it is 999")])
def test_what_cannot_be_trained_is_refused_in_words(command: Callable, tmp_path: Path, options: str, words: str) -> None:
    assert words in command(f"--checkpoints={tmp_path} {options}")


def test_a_rank_says_what_all_refuse_if_local_rank_0_has_not_ended_the_run(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(time, "sleep", waits.append)
    assert command("--speed=9") == "unrecognized arguments: --speed=9; --help lists all options" and waits == [5]


@pytest.mark.parametrize("gpus", [0, 1])
def test_restarts_in_one_store_are_refused_with_gpus_too(command: Callable, monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(script, "RESTARTS", 3)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 first" in command("")


def test_ranks_without_a_gpu_of_their_own_are_refused(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert command("") == "too few GPUs on this machine (1) for 2 ranks: start fewer ranks, or set CUDA_VISIBLE_DEVICES= to train on CPUs"


@pytest.mark.parametrize("gpus, backend, device", [(0, "gloo", "cpu"), (2, "cpu:gloo,cuda:nccl", "cuda")])
def test_ranks_wait_two_minutes_by_gloo_and_by_nccl_and_each_takes_its_gpu_first(monkeypatch: pytest.MonkeyPatch, gpus: int, backend: str, device: str) -> None:
    done: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: done.append(number))
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    monkeypatch.setattr(dist, "init_process_group", lambda *args, **named: done.append((args, named)))
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert script.join() == torch.device(device)
    assert done == [1] * (gpus > 0) + [((backend, None, timedelta(minutes=2), -1, -1, None), {})]
    assert torch.backends.cudnn.deterministic == (gpus > 0)


def test_one_group_with_two_backends_gives_both_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    dist.init_process_group("cpu:gloo,cuda:gloo", timeout=timedelta(seconds=7), store=store, rank=0, world_size=1)
    try:
        group = dist.distributed_c10d._get_default_group()
        for device in ("cpu", "cuda"):
            assert group._get_backend(torch.device(device)).options._timeout == timedelta(seconds=7)
    finally:
        dist.destroy_process_group()


def test_the_random_numbers_of_a_gpu_are_saved_and_restored_too(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    net = script.DDP(Plain())
    optimizer, of_gpu, restored = torch.optim.AdamW(net.parameters()), torch.arange(16, dtype=torch.uint8), []
    monkeypatch.setattr(net, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: of_gpu)
    monkeypatch.setattr(torch.cuda, "set_rng_state", restored.append)
    state = copy.deepcopy(script.state_of(net, optimizer, 3, {}))
    expected = torch.rand(4)
    script.restore(net, optimizer, state, script.read_options([]))
    assert len(restored) == 1 and restored[0].equal(of_gpu) and torch.rand(4).equal(expected)


def test_it_has_ten_options_at_most_and_its_help_names_each(command: Callable, capsys: pytest.CaptureFixture) -> None:
    assert command("--help") == 0
    printed = capsys.readouterr().out
    assert len(set(re.findall(r"^  (--[\w-]+)", printed, re.M))) == len(vars(script.read_options([]))) <= 10
    assert max(map(len, printed.splitlines())) <= 80


def test_it_needs_torch_d2lpar_and_filelock_and_torchvision_only_for_other_data(root: Path) -> None:
    text = (root / "d2lpar" / "train_ddp.py").read_text("utf8")
    tree = ast.parse(text)

    def imported(nodes: Any) -> set[str]:
        return {name.split(".")[0] for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)
                for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])}

    assert imported(tree.body) - sys.stdlib_module_names == {"torch", "d2lpar", "filelock"}
    assert imported(ast.walk(tree)) - imported(tree.body) == {"torchvision"}
    assert max(map(len, text.splitlines())) <= 88
    agent, = [i for i, node in enumerate(tree.body) if ast.unparse(node) == "AGENT = os.getppid()"]
    assert [ast.unparse(node) for node in tree.body[1:agent]] == ["import os"]  # before what is slow to import


def test_torchrun_takes_the_commands_that_it_shows_and_it_says_with_which_pytorch() -> None:
    text = re.sub("^srun --cpus-per-task=\\S+ ", "", (script.__doc__ or "").replace("\\\n", ""), flags=re.M)
    assert re.search(r"^Tested with PyTorch \d+\.\d+", text, re.M)
    shown = [shlex.split(line, comments=True) for line in text.splitlines() if line.startswith(("python ", "torchrun "))]
    assert [words[0] for words in shown] == ["python", "torchrun", "torchrun", "torchrun"] and all(words[-1] == "train_ddp.py" for words in shown)
    one, two, slurms = (torchrun_options(words[1:]) for words in shown[1:])
    assert (one.nproc_per_node, one.max_restarts, one.standalone) == ("2", 3, True)
    assert (two.nnodes, two.nproc_per_node, two.rdzv_backend, two.rdzv_endpoint) == ("2", "2", "c10d", "HOST:29500")
    assert (slurms.nnodes, slurms.nproc_per_node, slurms.rdzv_id, slurms.rdzv_endpoint) == ("2", "4", "$SLURM_JOB_ID", "$(hostname):29500")


def test_fashion_mnist_as_torchvision_has_it_is_read(tmp_path: Path) -> None:
    import struct

    (raw := tmp_path / "FashionMNIST" / "raw").mkdir(parents=True)
    for name, n in (("train", 12), ("t10k", 5)):
        for kind, x in (("images-idx3", torch.arange(n * 784).view(n, 28, 28) % 251), ("labels-idx1", torch.arange(n) % 10)):
            sizes = struct.pack(f">HBB{x.dim()}I", 0, 8, x.dim(), *x.shape)
            (raw / f"{name}-{kind}-ubyte").write_bytes(sizes + x.to(torch.uint8).numpy().tobytes())
    (X, y), (test_X, test_y) = script.load_data(str(tmp_path))
    assert (X.shape, X.dtype, y.tolist()) == ((12, 1, 28, 28), torch.uint8, [*range(10), 0, 1]) and (len(test_X), len(test_y)) == (5, 5)
    with pytest.raises(RuntimeError, match="Dataset not found"):
        script.load_data(str(tmp_path / "nowhere"))


def test_by_default_it_trains_on_the_images_of_the_package_and_prints_nothing_about_them(capsys: pytest.CaptureFixture) -> None:
    (X, y), (test_X, test_y) = script.load_data(None)
    assert (X.shape, len(y), test_X.shape, len(test_y)) == ((3584, 1, 28, 28), 3584, (2048, 1, 28, 28), 2048)
    assert capsys.readouterr().out == ""


def test_the_second_ctrl_c_is_obeyed_at_once(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    came = []
    monkeypatch.setattr(script, "fit", lambda *args: [came.append(signal.raise_signal(signal.SIGINT)) for _ in range(3)])
    with pytest.raises(KeyboardInterrupt):
        command("")
    assert came == [None]


@pytest.mark.parametrize("restarts, status", [(0, 75), (3, 0)])
def test_who_is_stopped_ends_so_that_torchrun_does_not_start_it_again(command: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                                      restarts: int, status: int) -> None:
    monkeypatch.setattr(script, "RESTARTS", restarts)
    update = script.update

    def signalled(*args: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return update(*args)

    monkeypatch.setattr(script, "update", signalled)
    assert command(f"{SMALL} --checkpoints={tmp_path}") == status
    assert (tmp_path / "stopped").read_text() == "stopped: 1 of 20 updates done and saved; the same command resumes the run\n"
    assert newest_checkpoint(tmp_path)[1]["step"] == 1


def test_ranks_whose_agent_is_gone_stop(command: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(script, "AGENT", 1)
    assert os.getppid() != 1 or pytest.skip("this process has no parent")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    assert command(f"{SMALL} --checkpoints={tmp_path}") == 75 and newest_checkpoint(tmp_path)[1]["step"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_alone_it_trains_and_stops_at_a_signal_with_a_status_of_its_own(root: Path, tmp_path: Path, ctrl_c_is_obeyed: None, how: int) -> None:
    shutil.copy(root / "d2lpar" / "train_ddp.py", tmp_path)
    with subprocess.Popen([sys.executable, "train_ddp.py", "--batch-size=32"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                          env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}) as running:
        for line in running.stdout:
            if "starting" in line:
                running.send_signal(how)
        errors = running.stderr.read()
    assert (running.returncode, errors) == (script.STOPPED, ""), errors
    made = int(re.fullmatch(r"stopped: (\d+) of 4480 updates done and saved; the same command resumes the run\n", line)[1])
    assert newest_checkpoint(tmp_path / "checkpoints")[1]["step"] == metrics_of(tmp_path / "checkpoints")[-1]["step"] == made >= 1
    assert (tmp_path / "checkpoints" / "stopped").read_text() == line


@pytest.mark.gpu
@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs NCCL")
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.gpu(2))])
def test_ranks_with_a_gpu_each_train_as_one_on_the_cpu_and_go_on_with_the_same_bits(ranks: int, root: Path, tmp_path: Path) -> None:
    text = (root / "d2lpar" / "train_ddp.py").read_text("utf8")
    for drawn in ("nn.Dropout(0.25), ", "nn.Dropout(0.5), "):
        text = text.replace(drawn, "")
    (tmp_path / "train_ddp.py").write_text(text.replace("augment(images[mine] / 255)", "images[mine] / 255"))

    def train(folder: str, epochs: int = 1, ranks: int = ranks, **variables: str) -> str:
        ended = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}",
                                "train_ddp.py", f"--epochs={epochs}", f"--checkpoints={folder}"],
                               cwd=tmp_path, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    assert "on cuda" in train("gpu", 2) and train("again").count("starting") == 1 and "28 of 56" in train("again", 2)
    assert train("gpu", 2)[-30:] == train("again", 2)[-30:]
    train("cpu", 1, 1, CUDA_VISIBLE_DEVICES="")
    found, expected = ([line["loss"] for line in metrics_of(tmp_path / name)[1:11]] for name in ("gpu", "cpu"))
    assert found == pytest.approx(expected, rel=0.05)  # BatchNorm sees shards of one minibatch
