"""Tests of book/lab/full_size.py, with few images and 8 channels: what it trains, and the length of each step."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median, stdev

import pytest
import torch
from torch import Tensor, nn

import full_size
from d2lpar import evaluate_accuracy, lenet, lenet_params, load_data_fashion_mnist
from d2lpar.checkpoints import digest_of
from d2lpar.data import Batches
from d2lpar.pages.results import stored_records
from study import add_gradients

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """230 images in batches of 64, of which 38 are left over; the study's own numbers do not matter here."""
    sizes = {"TRAIN": 230, "TEST": 64, "BRANCH_TEST": 32, "BATCH_SIZE": 64, "FEW": 38}
    for name, size in sizes.items():
        monkeypatch.setattr(full_size, name, size)
    monkeypatch.setattr(full_size, "NETWORK", full_size.NETWORK | {"width": 8})
    monkeypatch.setattr(full_size.accuracy, "__defaults__", (64,))
    full_size.images.cache_clear()
    full_size.trunk.cache_clear()


@pytest.mark.parametrize("last", ["full", "damped", "dropped"])
def test_an_epoch_is_that_of_a_plain_loop(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Exact(Batches):  # in float32, BatchNorm after such small weights makes rounding errors large
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            yield from ((X.double(), y) for X, y in super().__iter__())

    monkeypatch.setattr(full_size, "Batches", Exact)
    replicas = [replica.double() for replica in full_size.fresh(8, 0)]
    plain = copy.deepcopy(replicas)
    found = full_size.train_epoch(replicas, 3, last, 2)
    trainer = torch.optim.SGD(plain[0].parameters(), 0.2)
    train = full_size.images()[0]
    norms = []
    for X, y in Exact(train.images, train.labels, 64, shuffle_seed=203):
        if len(y) == 64 or last != "dropped":
            trainer.zero_grad()
            norms.append(add_gradients(plain, X, y, 64 if last == "damped" else len(y)))
            trainer.step()
    for ours, theirs in zip(replicas, plain, strict=True):
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-9, atol=1e-9)
    assert found["usual"] == pytest.approx(sorted(norms[:3])[1], rel=1e-3)
    share = 38 / 64 if last == "damped" else 1  # the divisor shortens the gradient there, the rate here
    assert found["few"] == (None if last == "dropped" else pytest.approx(norms[3] / share, rel=1e-3))
    assert (found["before_last"] == found["accuracy"]) or last != "dropped"


def test_a_checkpoint_that_is_gone_is_computed_again_bit_for_bit(tmp_path: Path) -> None:
    first = [full_size.one(tmp_path, "training", 0, epoch, 8, "full") for epoch in (1, 2)]
    (tmp_path / "8_full_0_1.pt").unlink()
    again = full_size.one(tmp_path, "training", 0, 2, 8, "full")  # from its own checkpoint
    assert again == first[1]
    (tmp_path / "8_full_0_2.pt").unlink()
    again = full_size.one(tmp_path, "training", 0, 2, 8, "full")  # from the start
    assert again["digest"] == first[1]["digest"] != first[0]["digest"]
    after_one = full_size.trained(tmp_path, 1, 8, "full", 0)["replicas"]
    assert full_size.train_epoch(after_one, 2, "full", 0)["digest"] == again["digest"]  # it goes on from there
    replicas = full_size.trained(tmp_path, 2, 8, "full", 0)["replicas"]
    assert digest_of([replica.state_dict() for replica in replicas]) == again["digest"]
    means = [replica.state_dict()["1.running_mean"] for replica in replicas]  # each replica has its own
    assert not torch.equal(*means)
    assert replicas[0].state_dict()["0.weight"].data_ptr() == replicas[1].state_dict()["0.weight"].data_ptr()


def test_each_branch_starts_from_the_same_network_and_has_the_length_of_its_name(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts, lengths, right = [], [], full_size.move

    def watched(net: nn.Module, gradient: list[Tensor], lr: float) -> None:
        starts.append(digest_of(list(net.parameters())))
        lengths.append(lr * torch.cat([g.flatten() for g in gradient]).norm().item())
        right(net, gradient, lr)

    usual = full_size.one(tmp_path, "network", 0, 1, 8, "dropped")["usual"]
    trunk = full_size.trunk(tmp_path, 1)[0]
    whole = digest_of([replica.state_dict() for replica in trunk])
    monkeypatch.setattr(full_size, "move", watched)
    found = full_size.one(tmp_path, "branch", 5, 1)
    few = 0.2 * found["norm_few"]
    assert lengths == pytest.approx([few, few * 38 / 64, 0.2 * usual, few], rel=1e-3)
    assert len(set(starts)) == 1
    assert digest_of([replica.state_dict() for replica in trunk]) == whole  # its running statistics, too
    assert full_size.one(tmp_path, "branch", 5, 1) == found
    assert full_size.one(tmp_path, "branch", 6, 1)["norm_few"] != found["norm_few"]
    assert found["before"] == full_size.accuracy(full_size.trained(tmp_path, 1, 8, "dropped", 0)["replicas"][0], 32)


def test_accuracy_counts_all_images_once() -> None:
    class Sees(nn.Module):
        def forward(self, X: Tensor) -> Tensor:
            assert not self.training
            return nn.functional.one_hot(torch.zeros(len(X), dtype=torch.int64), 10)

    test = full_size.images()[1]
    assert full_size.accuracy(Sees().train()) == (test.labels == 0).sum().item() / 64


def test_lenet_is_trained_from_the_published_start_on_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_size, "LENET_BATCH_SIZE", 64)
    monkeypatch.setattr(full_size, "EPOCHS", 2)
    train_iter, test_iter = load_data_fashion_mnist(64, 230, seed=3)
    params = [p.requires_grad_() for p in lenet_params(0.01, 3)]
    accuracies = []
    for _ in range(2):
        for X, y in train_iter:
            grads = torch.autograd.grad(nn.functional.cross_entropy(lenet(X, params), y, reduction="sum"), params)
            with torch.no_grad():
                for p, g in zip(params, grads):
                    p -= 0.2 * g / len(y)
        accuracies.append(round(evaluate_accuracy(params, test_iter), 4))
    found = full_size.one(Path(), "lenet", 3, num_devices=1)
    assert (found["digest"], found["accuracies"]) == (digest_of([params]), accuracies)
    assert len(found["epoch_s"]) == 2
    two = full_size.one(Path(), "lenet", 3, num_devices=2)
    assert two["accuracies"] == pytest.approx(accuracies, abs=0.01)
    assert two["digest"] != found["digest"]


def test_the_runs_are_those_that_were_announced() -> None:
    runs = full_size.all_runs(3)
    kinds = [run["part"] for run in runs]
    counts = {"lenet": 3 * 2, "network": 3, "branch": 3 * 40, "training": 3 * 3 * 10}
    assert {part: kinds.count(part) for part in {*kinds}} == counts
    assert full_size.all_runs(5)[:len(runs)] == runs  # more seeds come after these


def test_the_page_quotes_each_prediction_and_what_the_records_say_of_it(root: Path) -> None:
    page = json.loads((root / "notebooks" / "appendix" / "how_the_case_was_studied.ipynb").read_text("utf8"))
    text = "\n".join("".join(cell["source"]) for cell in page["cells"])
    rows = [re.search(f"{re.escape(f'| {words} | ')}(.*)", text)[1] for words in full_size.PREDICTIONS.values()]
    branches = [record for record in stored_records("full_size")[1] if record["run"]["part"] == "branch"]
    for epoch, ratio in ((1, 1.78), (2, 1.82)):
        found = [b["norm_few"] / b["norm_batch"] for b in branches if b["run"]["epoch"] == epoch]
        assert len(found) == 40 and f"{median(found):.2f}" == str(ratio) and f"{ratio} times" in rows[0]
    lost = {kind: [f"{100 * mean(b['before'] - b[kind] for b in branches if b['run']['epoch'] == epoch):.1f}" for epoch in (1, 2)]
            for kind in ("few", "damped", "few_usual", "batch_long")}
    assert f"Wrong after the second epoch: {lost['few'][1]} points" in rows[1] and float(lost["few"][1]) > 4
    assert "gains {} points after the first epoch, and {} after".format(*lost["damped"]).replace("-", "") in rows[2] and {x[0] for x in lost["damped"]} == {"-"}
    assert f"({lost['few_usual'][0]} points of {lost['few'][0]})" in rows[3]
    assert f"gain {lost['few_usual'][1][1:]} points" in rows[3] and lost["few_usual"][1][0] == "-"
    assert "cost {} and {} points".format(*lost["batch_long"]) in rows[3]
    late: dict[tuple[str, int], list[float]] = {}
    for record in stored_records("full_size")[1]:
        if record["run"]["part"] == "training" and record["run"]["epoch"] >= 4:
            late.setdefault((record["run"]["last"], record["run"]["seed"]), []).append(record["accuracy"])
    assert {key: len(x) for key, x in late.items()} == {(last, seed): 7 for last in ("full", "damped", "dropped") for seed in range(3)}
    for high, low, row in (("dropped", "full", rows[4]), ("damped", "dropped", rows[5])):
        apart = [100 * (mean(late[high, seed]) - mean(late[low, seed])) for seed in range(3)]
        half = 4.303 * stdev(apart) / 3**0.5  # Student's t, two degrees of freedom
        assert "{:.1f}, {:.1f} and {:.1f} points".format(*apart) in row
        assert f"{mean(apart):z.1f} on average (95% interval {mean(apart) - half:.1f} to {mean(apart) + half:.1f})" in row
