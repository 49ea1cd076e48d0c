"""Tests of d2lpar.processes.diagnosis, symptoms and watch: right trainings pass, each mistake is found by its name, and a fault is never missed."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from d2lpar.processes import RankGroup, diagnosis
from d2lpar.processes.diagnosis import diagnose
from d2lpar.processes.recording import record_training
from d2lpar.processes.symptoms import Diagnosis, compare
from helpers.ddp_scripts import RIGHT, WRONG, ddp, mlp, no_step, waits_in_step_2, whole_batch_loss

SHARED = nn.Linear(6, 4)


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request, group_of):
    return group_of(request.param)


def examples(n=54):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 6, generator=generator), torch.randint(4, (n,), generator=generator)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_training_passes(name, ranks):
    train, make_net, notes = RIGHT[name]
    found = diagnose(train, make_net, *examples(), ranks)
    assert found.ok and list(found.notes) == notes and "no fault found" in str(found), str(found)


@pytest.mark.parametrize("name", WRONG)
def test_each_mistake_is_found_by_its_name(name, ranks):
    train, make_net, faults = WRONG[name]
    found = diagnose(train, make_net, *examples(), ranks)
    assert not found.ok and list(found.faults) == faults and "FAULT" in str(found), str(found)


def test_the_mistake_of_one_rank_is_told_with_its_name(ranks):
    assert "of rank 1" in diagnose(*WRONG["NaN on one rank"][:2], *examples(), ranks).faults["NaN"]
    assert "0.weight, 0.bias" in diagnose(*WRONG["unfrozen"][:2], *examples(), ranks).faults["not exchanged"]
    assert "2.weight, 2.bias" in diagnose(*WRONG["replaced"][:2], *examples(), ranks).faults["different start"]


def test_words_for_a_reader(ranks):
    k = ranks.world_size
    found = diagnose(*RIGHT["rate times ranks"][:2], *examples(), ranks)
    assert f"{k} times as long" in found.notes["another rate"] and "nothing after step 1 of 3 was compared" in found.notes["another rate"]
    assert "1.running_mean is" in diagnose(*WRONG["buffers left out"][:2], *examples(), ranks).faults["different buffers"]
    assert "left out of a loop" in diagnose(*WRONG["biases left out"][:2], *examples(), ranks).faults["not exchanged"]
    assert "another gradient" in diagnose(*RIGHT["averaged, then values clipped"][:2], *examples(), ranks).notes["unequal shards"]
    assert "ValueError: unequal" in diagnose(*RIGHT["fails on unequal shards"][:2], *examples(), ranks).notes["unequal shards"]


@pytest.mark.slow
def test_a_hang_after_the_first_step_does_not_hide_what_that_showed():
    with RankGroup(2) as group:
        group.run(abs)
        found = diagnose(waits_in_step_2, mlp, *examples(), group, timeout_s=10)
    assert list(found.faults) == ["summed", "hangs"] and "rank 0" in found.faults["hangs"]


def test_any_error_of_one_worker_in_the_first_step_is_raised_as_it_is(ranks):
    def broken(net, batches):
        return {}["no such thing"]

    with pytest.raises(KeyError, match="no such thing"):
        diagnose(broken, mlp, *examples(), ranks)


def test_all_lines_fit_a_page(ranks):
    for train, make_net, _ in [*RIGHT.values(), *WRONG.values()][::5]:
        assert max(map(len, str(diagnose(train, make_net, *examples(), ranks)).splitlines())) <= 88


def test_watching_sees_the_own_gradient_and_leaves_no_hook():
    def train(net, batches):
        for X, y in batches:
            F.cross_entropy(net(X), y).backward()
            for p in net.parameters():
                p.grad *= 3  # as if somebody had changed it
            optimizer.step()
            optimizer.zero_grad()
        return [torch.tensor(1.0), 2]

    X, y = examples(4)
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    seen = record_training(train, net, [(X, y), (X, y)])
    assert len(seen.steps) == 2 and seen.losses == [1.0, 2.0]
    for step in seen.steps:
        for name, own in step.own.items():
            torch.testing.assert_close(step.gradients[name], 3 * own)
            torch.testing.assert_close(step.after[name], step.before[name] - 0.5 * step.gradients[name])
    with pytest.raises(ZeroDivisionError):
        record_training(lambda net, batches: 1 // 0, net, [])
    optimizer.step()
    net(X)
    assert len(seen.steps) == 2 and not net._forward_pre_hooks


def test_the_caller_is_left_as_it_was(ranks):
    before = torch.get_rng_state()
    diagnose(ddp(), mlp, *examples(), ranks)
    assert torch.equal(torch.get_rng_state(), before) and not dist.is_initialized()


def test_what_goes_wrong_in_the_first_step_is_raised(ranks):
    with pytest.raises(ValueError, match="has not made a step"):
        diagnose(no_step, mlp, *examples(), ranks)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        diagnose(ddp(), lambda: nn.Linear(7, 4), *examples(), ranks)
    assert not dist.is_initialized()


@pytest.mark.parametrize("changes, words", [
    ({"train": None}, "train must be a function"), ({"make_net": lambda: SHARED}, "a new network at each call"), ({"make_net": dict}, "a network must be"),
    ({"X": 3}, "entry 0 is 3"), ({"y": torch.zeros(5)}, "one row per example"), ({"ranks": 1}, "at least 2"), ({"ranks": True}, "at least 2"),
    ({"num_steps": 0}, "at least 1"), ({"X": torch.zeros(11, 6), "y": torch.zeros(11).long()}, "3 minibatches of at least 4 examples"),
])
def test_arguments_that_make_no_sense_are_refused_before_anything_runs(changes, words, monkeypatch):
    monkeypatch.setattr(diagnosis, "_run_alone", lambda *args: pytest.fail("it has begun"))
    X, y = examples()
    with pytest.raises(ValueError, match=words):
        diagnose(**{"train": ddp(), "make_net": mlp, "X": X, "y": y} | changes)


def test_a_process_that_is_in_a_group_is_refused():
    with diagnosis._group_of_one(), pytest.raises(ValueError, match="leave it first"):
        diagnose(ddp(), mlp, *examples())


def records():
    """One worker, and two ranks that did the same, as they are seen; a test makes them wrong."""
    X, y = (x[:48].reshape(3, 16, *x.shape[1:]) for x in examples())
    alone = diagnosis._run_alone(ddp(loss=whole_batch_loss), mlp, [(A.double(), c) for A, c in zip(X, y)], 0)
    return alone, [copy.deepcopy(alone), copy.deepcopy(alone)]


def lose(step, name):
    step.gradients.pop(name)


def poison(step, name):
    step.gradients[name].fill_(float("nan"))


def move(step, name):
    step.gradients[name] += 1e-6


def shift(step, name):
    step.after[name] += 1e-6


@pytest.mark.parametrize("wrong", [lose, poison, move, shift])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("t", [0, 2])
def test_one_wrong_number_on_one_rank_is_a_fault(wrong, rank, t):
    alone, ranks = records()
    found = Diagnosis("as it was")
    compare(alone, ranks, [8, 8], found)
    assert found.ok and not found.notes
    wrong(ranks[rank].steps[t], "2.bias")
    compare(alone, ranks, [8, 8], found)
    assert not found.ok


@pytest.mark.parametrize("rank", [0, 1])
def test_nan_in_a_buffer_and_a_parameter_that_is_missing_are_another_start(rank):
    alone, ranks = records()
    for record in [alone, *ranks]:
        record.buffers["mean"] = torch.zeros(3)
    ranks[rank].buffers["mean"][0] = float("nan")
    del ranks[rank].steps[0].before["2.bias"]
    found = Diagnosis("another start")
    compare(alone, ranks, [8, 8], found)
    assert list(found.faults) == ["different start", "different buffers"]


def test_a_step_too_few_is_a_fault():
    alone, ranks = records()
    ranks[1].steps.pop()
    found = Diagnosis("too few")
    compare(alone, ranks, [8, 8], found)
    assert "[3, 2]" in found.faults["other steps"]


def test_unequal_shards_are_unequal_and_none_is_empty():
    for k in range(2, 9):
        for n in range(2 * k, 6 * k):
            sizes = diagnosis._cut_unequally(n, k)
            assert sum(sizes) == n and len(sizes) == k and min(sizes) >= 1 and sizes[0] > sizes[-1]


def test_a_factor_is_told_from_another_gradient_in_three_numbers():
    """By hand: one worker has (1, 2, 2); 2 ranks that both have twice that have summed."""
    alone, ranks = records()
    for record in [alone, *ranks]:
        del record.steps[1:]
        record.steps[0].gradients.clear()
        record.steps[0].gradients["0.bias"] = torch.tensor([1.0, 2.0, 2.0]).double()
    for rank in ranks:
        rank.steps[0].gradients["0.bias"] *= 2
        rank.steps[0].own["0.bias"] = rank.steps[0].gradients["0.bias"] / 2
    found = Diagnosis("three numbers")
    compare(alone, ranks, [8, 8], found)
    assert "2 times one worker's" in found.faults["summed"]
    ranks[0].steps[0].gradients["0.bias"] *= torch.tensor([1.0, 1.0, -1.0])
    ranks[1].steps[0].gradients["0.bias"] *= torch.tensor([1.0, 1.0, -1.0])
    found = Diagnosis("three numbers")
    compare(alone, ranks, [8, 8], found)
    assert list(found.faults) == ["another gradient"]


@pytest.mark.slow
def test_it_runs_processes_of_its_own_where_no_group_is_given():
    assert diagnose(ddp(loss=F.cross_entropy), mlp, *examples()).ok
