"""Tests of book/lab/branches.py: every step has the length and the direction that its name says, and the rest stays."""

import copy
from inspect import signature

import pytest
import torch
from torch.nn import functional as F

import branches
import study
from branches import EPOCHS, SIZES, run_all_branches, run_branches, stepped
from d2lpar.pages.results import stored_records
from d2lpar.scratch import distance, same_bits
from records import CALLED
from study import SMALL, Setting, Size, load_data_fashion_mnist, run_setting, starting_network

TINY = Size(width=8, batch_size=4, num_train=22, num_test=20, num_epochs=2)  # the last minibatch: 6 of 8
KINDS = ["few", "damped", "few_usual", "batch", "batch_long", "many_long", "none"]

pytestmark = pytest.mark.usefixtures("one_core", "small_data")


@pytest.fixture
def net():
    return starting_network(Setting("dropped", "fresh", 1, 8, 0.2, 22), 0, TINY).double()


def drawn(n, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, 28, 28, generator=generator).double(), torch.arange(n) % 10


def moved(net, end):
    return torch.cat([(q - p).detach().flatten() for p, q in zip(net.parameters(), end.parameters())])


def test_a_step_is_that_of_sgd_on_the_mean_loss_and_leaves_the_network_alone(net):
    before, (X, y) = copy.deepcopy(net.state_dict()), drawn(6)
    end, norm = stepped(net, X, y, 0.2)
    assert all(torch.equal(x, before[name]) for name, x in net.state_dict().items())
    right = copy.deepcopy(net).train()
    trainer = torch.optim.SGD(right.parameters(), 0.2)
    F.cross_entropy(right(X), y).backward()
    trainer.step()
    assert distance(list(end.parameters()), list(right.parameters())) < 1e-12
    assert same_bits([[b.double() for b in end.buffers()], [b.double() for b in right.buffers()]])
    assert moved(net, end).norm().item() == pytest.approx(0.2 * norm, rel=1e-9) and norm > 0


def test_a_step_of_another_length_has_the_same_direction(net):
    X, y = drawn(6)
    (usual, norm), (long, same) = stepped(net, X, y, 0.2), stepped(net, X, y, 0.2, 3.0)
    assert norm == same and abs(norm - 3.0) > 0.01
    assert moved(net, long).norm().item() == pytest.approx(0.6, rel=1e-9)
    assert distance([moved(net, long) * norm / 3.0], [moved(net, usual)]) < 1e-9


def test_every_kind_of_step_has_its_length_and_its_images(monkeypatch):
    train_iter, test_iter = load_data_fashion_mnist(8, 22, 20, 0)
    net = starting_network(Setting("dropped", "fresh", 1, 8, 0.2, 22), 0, TINY)
    seen, ends = [], []

    def watched(net, X, *args, right=branches.stepped):
        seen.append(len(X))
        return right(net, X, *args)

    def accuracy(nets, test_iter):
        ends.append(nets[0])
        return 0.5

    monkeypatch.setattr(branches, "stepped", watched)
    monkeypatch.setattr(branches, "accuracy_in_turn", accuracy)
    monkeypatch.setattr(branches, "MANY", 20)
    found = branches.branch(net, train_iter, test_iter, 6, 8, 0.2, 1.5, torch.Generator().manual_seed(0))
    assert list(found) == ["before", *KINDS, "norms"] and seen == [6, 6, 6, 8, 8, 20, 6]
    before, ends = ends[-1], dict(zip(KINDS, ends))
    lengths = {name: moved(net, end).norm().item() / 0.2 for name, end in ends.items()}
    six, batch = found["norms"]["few"], found["norms"]["batch"]
    right = {"few": six, "damped": six * 6 / 8, "few_usual": 1.5, "batch": batch, "batch_long": six, "many_long": six, "none": 0}
    assert before is net and lengths == pytest.approx(right, rel=1e-2) and len({six, batch, 1.5}) == 3
    for name, end in ends.items():
        assert not torch.equal(end[1].running_mean, net[1].running_mean), f"{name}: the statistics move, as in any step"
    assert torch.equal(ends["batch"][1].running_mean, ends["batch_long"][1].running_mean)
    assert not torch.equal(ends["batch"][1].running_mean, ends["few"][1].running_mean)


def test_drawn_images_are_real_ones_with_their_labels_and_none_twice(net):
    train_iter, _ = load_data_fashion_mnist(8, 22, 20, 0)
    X, y = branches.drawn(train_iter, 22, torch.Generator().manual_seed(0), net)
    pairs = sorted((round(x.sum().item(), 3), c.item()) for x, c in zip(X, y))
    assert pairs == sorted((round((x / 255).sum().item(), 3), c.item()) for x, c in zip(train_iter.images, train_iter.labels))
    assert len(set(pairs)) == 22 and X.max() <= 1


def test_the_network_that_branches_is_that_of_the_study_with_the_last_step_dropped():
    found = run_branches(8, 0.2, 0, TINY, epochs=(1, 2), num_draws=2)
    right = run_setting(Setting("dropped", "fresh", 1, 8, 0.2, 22), 0, TINY)
    assert [(b["epoch"], b["before"]) for b in found["branches"]] == [(e, right["accuracies"][e - 1]) for e in (1, 1, 2, 2)]
    assert [b["norms"]["usual"] for b in found["branches"][::2]] == pytest.approx(right["gradient"], rel=1e-3)
    assert len(found["squares"]) == 2 and list(found["squares"][0]) == [str(n) for n in SIZES]
    again = run_branches(8, 0.2, 0, TINY, epochs=(2,), num_draws=1)
    assert again["branches"][0]["before"] == right["accuracies"][1]


def test_the_mean_square_is_that_of_the_norms_of_so_many_images(monkeypatch):
    train_iter, _ = load_data_fashion_mnist(8, 140, 20, 0)
    lengths = iter([3.0, 4.0] * len(SIZES))
    monkeypatch.setattr(branches, "stepped", lambda net, X, y, lr: (sizes.append((len(X), lr)), next(lengths)))
    sizes, net = [], torch.nn.Linear(1, 1)
    assert set(branches.mean_squares(net, train_iter, torch.Generator(), 2).values()) == {12.5}
    assert sizes == [(n, 0) for n in SIZES for _ in range(2)]


def test_there_is_a_record_of_every_seed(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(study, "run_missing", lambda path, about, runs, function, n: calls.append((about, runs, function, n)))
    run_all_branches(tmp_path / "x.jsonl", 3, TINY)
    [(about, runs, function, processes)] = calls
    assert runs == [{"batch_size": 8, "lr": 0.2, "seed": seed} for seed in range(3)] and processes >= 1
    assert about["size"] == TINY._asdict() and about["data"]["num_train"] == 22
    assert list(signature(function.func).parameters) == ["size", *runs[0]] and function.args == (TINY,)

def test_damped_by_its_divisor_or_by_its_rate_is_the_same_step(net):
    X, y = drawn(6)
    by_rate, _ = stepped(net, X, y, 0.2 * 6 / 8)
    study.add_gradients([net], X, y, 8)
    with torch.no_grad():
        by_divisor = [p - 0.2 * p.grad for p in net.parameters()]
    assert distance(by_divisor, list(by_rate.parameters())) < 1e-12


# the stored ones


def test_the_stored_branches_are_of_ten_networks_on_real_data():
    about, records = stored_records("branches")
    assert [r["run"] for r in records] == [{"batch_size": 32, "lr": 0.2, "seed": seed} for seed in range(10)]
    assert about["command"] == CALLED["python book/lab/branches.py"] and about["size"] == SMALL._asdict()
    assert about["data"]["source"] == "Fashion-MNIST" and about["data"] == stored_records("last_minibatch")[0]["data"]
    for record in records:
        assert [b["epoch"] for b in record["branches"]] == [e for e in EPOCHS for _ in range(2)]
        shares = [b[name] for b in record["branches"] for name in ["before", *KINDS]]
        assert all(0 <= share <= 1 and share * 1024 == round(share * 1024) for share in shares), "of 1,024 images"
        assert all(norm > 0 for b in record["branches"] for norm in b["norms"].values())
        assert len(record["squares"]) == len(EPOCHS)
