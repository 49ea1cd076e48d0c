"""Tests of d2lpar.pages.results and of lenet_runs and batch_sizes in book/lab: what long runs have found, and that a page may draw it."""

from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from math import isfinite

import pytest
import torch

import batch_sizes
import lenet_runs
from d2lpar import get_params, load_data_fashion_mnist, train_batch, try_devices
from d2lpar.models import lenet_params
from d2lpar.pages.results import RecordError, stored_records, stored_results, stored_script
from d2lpar.scratch import distance, shard_backward
from records import CALLED

GROUPS = {"devices": 25, "variant": 15, "batches": 40, "rounding": 45, "start": 3}


@pytest.fixture(scope="module")
def tool():
    return lenet_runs


@pytest.fixture
def counting(small_data, one_core, monkeypatch):
    """The tool that counts updates to a target, on 64 images."""
    module = batch_sizes
    for name, value in {"NUM_TRAIN": 64, "NUM_TEST": 16, "MAX_EPOCHS": 1}.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_stored_records_are_read_with_what_is_said_of_them_and_not_when_they_are_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr("d2lpar.pages.results.FOLDER", tmp_path)
    file = tmp_path / "few.jsonl"
    file.write_text('{"about": {"command": "so"}}\n{"run": {"seed": 0}, "updates": 3}\n')
    assert stored_records("few") == ({"command": "so"}, [{"run": {"seed": 0}, "updates": 3}])
    file.write_text(file.read_text()[:-2])
    with pytest.raises(RecordError, match="cut off in line 2"):
        stored_records("few")


def test_the_stored_trainings_are_those_of_the_plan_on_real_data(tool):
    found = stored_results("lenet_runs")
    about = found.pop("about")
    assert {name: len(runs) for name, runs in found.items()} == GROUPS == Counter(group for group, *_ in tool.plan())
    said = [(group, said) for group, said, *_ in tool.plan()]
    kept = {"updates_per_epoch", "accuracies", "apart"}
    assert [(group, {k: v for k, v in run.items() if k not in kept}) for group in found for run in found[group]] == sorted(
        said, key=lambda pair: list(found).index(pair[0]))
    assert about["command"] == CALLED[tool.COMMAND] and about["data"].startswith("Fashion-MNIST") and "cores" in about["machine"]["processor"]


def test_every_stored_number_can_be_one():
    found = stored_results("lenet_runs")
    for group, runs in found.items():
        for run in runs if group != "about" else ():
            assert all(0 <= accuracy <= 1 for accuracy in run.get("accuracies", []))
            assert run["apart"] and all(isfinite(far) and far >= 0 for far in run["apart"])
    assert all(far == 0 for run in found["devices"] for far in run["apart"]), "replicas of the right training are equal"
    assert all(far > 0.01 for run in found["variant"] for far in run["apart"])


def test_in_the_trap_rank_0_takes_the_right_step_once_and_rank_1_that_of_its_shard(tool, one_core):
    X, y, devices = torch.rand(6, 1, 28, 28).double(), torch.arange(6), try_devices(2)
    start = [p.double() for p in lenet_params()]
    replicas = [get_params(start, device) for device in devices]
    tool.trapped_batch(X, y, replicas, devices, 0.2)
    for replica, images, labels in zip(replicas, (X, X[3:]), (y, y[3:])):
        right = get_params(start, devices[0])
        shard_backward(images, labels, right)
        assert distance(replica, [p - 0.2 * p.grad / 6 for p in right]) < 1e-12


def test_the_steps_that_drift_apart_begin_as_one(tool, small_data, one_core):
    tool.NUM_TRAIN, tool.NUM_TEST = 64, 8
    for activation in tool.ACTIVATIONS:
        apart = tool.drift(activation, 0.05, torch.float64, seed=0)["apart"]
        assert len(apart) == 2 and apart[0] < 1e-14


def test_a_run_has_its_own_order_start_and_scale(tool, small_data, one_core, monkeypatch):
    monkeypatch.setattr(tool, "NUM_TRAIN", 64)
    monkeypatch.setattr(tool, "NUM_TEST", 8)

    def first_step(start=0, order=0, scale=None):
        seen = []
        tool.training(1, 32, 0.1, start, order, 1, scale, lambda X, y, replicas, *_: seen.append((X, replicas[0][0].detach().clone())))
        return seen[0]

    X, W1 = first_step()
    assert all(map(torch.equal, first_step(), (X, W1))), "the same run again"
    assert not torch.equal(first_step(order=1)[0], X) and torch.equal(first_step(order=1)[1], W1)
    assert torch.equal(first_step(start=1)[0], X) and not torch.equal(first_step(start=1)[1], W1)
    assert first_step(scale=0.01)[1].std() < 0.02 < W1.std()


def test_a_run_keeps_the_accuracy_of_rank_0_and_the_distance_of_the_farthest_replica(tool, small_data, one_core, monkeypatch):
    monkeypatch.setattr(tool, "NUM_TRAIN", 64)
    monkeypatch.setattr(tool, "NUM_TEST", 8)
    monkeypatch.setattr(tool, "evaluate_accuracy", lambda params, test_iter: params[7][0].item())

    def step(X, y, replicas, devices, lr):
        for replica, value in zip(replicas, (0.25, 0.75, 0.5)):
            replica[7].data.fill_(value)

    run = tool.training(3, 32, 0.1, 0, 0, epochs=1, step=step)
    assert run["accuracies"] == [0.25] and run["apart"] == [2]  # |0.75 - 0.25| / 0.25
    assert tool.training(2, 64, 0.1, 0, 0, epochs=1, step=tool.trapped_batch)["apart"][0] > 0


def test_the_stored_batch_sizes_are_those_of_the_plan_on_real_data():
    tool = batch_sizes
    about, records = stored_records("batch_sizes")
    assert sorted(str(record["run"]) for record in records) == sorted(map(str, tool.plan()))
    assert (about["command"], about["target"], about["max_epochs"]) == (CALLED[tool.COMMAND], tool.TARGET, tool.MAX_EPOCHS)
    assert (about["data"]["source"], about["data"]["num_train"]) == ("Fashion-MNIST", tool.NUM_TRAIN)
    assert all(tool.NUM_TRAIN % n == 0 for n in tool.BATCH_SIZES), "every minibatch is full"
    for record in records:
        assert (record["updates"] is not None) == (record["accuracy"] >= tool.TARGET)
        assert record["updates"] is None or record["updates"] * record["run"]["batch_size"] <= tool.MAX_EPOCHS * tool.NUM_TRAIN


def test_a_run_to_a_target_looks_after_8_updates_and_then_ever_more_rarely(counting, monkeypatch):
    looks = []
    monkeypatch.setattr(counting, "evaluate_accuracy", lambda params, test_iter: looks.append(1) or [0.1, 0.2, 0.9][len(looks) - 1])
    assert counting.updates_to_target(4, 0.01, 0) == {"updates": 10, "accuracy": 0.9} and len(looks) == 3


def test_a_run_that_does_not_reach_the_target_has_no_updates(counting, monkeypatch):
    monkeypatch.setattr(counting, "TARGET", 2)
    assert counting.updates_to_target(4, 0.01, 0)["updates"] is None


def test_a_run_to_a_target_takes_the_steps_of_one_device_in_pieces(counting, monkeypatch):
    seen = []
    monkeypatch.setattr(counting, "PIECE", 3)
    monkeypatch.setattr(counting, "evaluate_accuracy", lambda params, test_iter: seen.append([p.detach().clone() for p in params]) or 1)
    assert counting.updates_to_target(8, 0.05, 3)["updates"] == 8
    with redirect_stdout(StringIO()):
        batches, _ = load_data_fashion_mnist(8, 64, 16, seed=3)
    params = get_params(lenet_params(seed=3), torch.device("cpu"))
    for X, y in batches:
        train_batch(X, y, [params], [torch.device("cpu")], 0.05)
    assert distance(seen[0], params) < 1e-4


def test_the_plan_has_each_batch_size_at_each_rate_with_each_seed_once():
    tool = batch_sizes
    settings = Counter((run["batch_size"], run["lr"]) for run in tool.plan())
    assert set(settings.values()) == {len(tool.SEEDS)} and len(settings) == len(tool.BATCH_SIZES) * len(tool.RATES)


def test_a_script_is_found_by_its_name():
    compile(stored_script("ring"), "ring.py", "exec")
