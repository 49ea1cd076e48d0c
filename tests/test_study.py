"""Tests of book/lab/study.py: what is trained under which setting, and what is measured at the last step of an epoch."""

import copy
from inspect import signature
from math import inf
from statistics import mean, median

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import study
from d2lpar import DataParallel, try_devices
from d2lpar.models import init_weights, initialize, resnet18
from d2lpar.pages.results import median_interval, stored_records
from d2lpar.scratch import distance, same_bits
from records import CALLED
from study import FULL, SMALL, Setting, Size, first_setting, predicted, run_setting, run_study, settings

TINY = Size(width=8, batch_size=4, num_train=22, num_test=20, num_epochs=2)  # the last minibatch: 2 of 4, and 6 of 8
BASE = Setting("full", "fresh", 2, 8, 0.2, 22)

pytestmark = pytest.mark.usefixtures("one_core", "small_data")


def trained(setting, seed=0, size=TINY):
    return study._train(setting, seed, size)


def steps_of(setting, monkeypatch, size=TINY):
    """What each step of a training was made from: shard sizes, the divisor, and the rate."""
    seen = []

    def watched(replicas, X, y, divisor, right=study.add_gradients):
        seen.append((len(replicas), len(y), divisor))
        return right(replicas, X, y, divisor)

    monkeypatch.setattr(study, "add_gradients", watched)
    trained(setting, size=size)
    return seen


def test_the_scale_model_has_the_proportions_of_the_original():
    for small, full in zip(settings(SMALL), settings(FULL)):
        assert small.batch_size * 16 == full.batch_size and small.lr == full.lr
        assert small.num_train % small.batch_size * 16 == full.num_train % full.batch_size == 96
        assert small._replace(batch_size=0, num_train=0) == full._replace(batch_size=0, num_train=0)
    assert 60_000 // 512 == 117 and 3558 // 32 == 111  # updates of an epoch, nearly the same


def test_the_settings_cross_the_factors_once_each():
    found = settings()
    assert len(found) == len(set(found)) == 15
    fresh = {s[:1] + s[2:5] for s in found if s.start == "fresh"}
    assert fresh == {(last, k, *recipe) for last in ("full", "damped", "dropped") for k in (1, 2)
                     for recipe in ((16, 0.1), (32, 0.2))}
    assert {s[:5] for s in found if s.start == "used"} == {
        (last, "used", 2, 32, 0.2) for last in ("full", "damped", "dropped")}
    assert first_setting(SMALL) == ("full", "fresh", 1, 16, 0.1, 3558, "batch")
    assert [s.num_train % s.batch_size for s in predicted(FULL).values()] == [511, 1, 96, 96]
    assert max(s.num_train for s in [*settings(FULL), *predicted(FULL).values()]) <= 60_000, "there are no more images"
    rests = [s.num_train % s.batch_size for s in predicted().values()]
    assert rests == [31, 1, 6, 6] and not set(predicted().values()) & set(found)


@pytest.mark.parametrize(("last", "expected"), [("full", [8, 8, 6]), ("damped", [8, 8, 8]), ("dropped", [8, 8])])
def test_the_last_step_is_divided_as_its_setting_says(last, expected, monkeypatch):
    seen = steps_of(BASE._replace(last=last), monkeypatch)
    assert [divisor for *_, divisor in seen] == 2 * expected
    assert [n for _, n, _ in seen] == 2 * ([8, 8, 6] if last != "dropped" else [8, 8])
    assert {k for k, *_ in seen} == {2}


def test_two_devices_in_turn_make_the_gradient_and_the_statistics_of_two_side_by_side():
    torch.manual_seed(0)
    X, y, devices = torch.rand(7, 1, 28, 28, dtype=torch.float64), torch.arange(7), try_devices(2)
    net = resnet18(10, width=4).double()
    initialize(net, 0)
    parallel = DataParallel(copy.deepcopy(net), devices)
    F.cross_entropy(parallel(X), y).backward()
    replicas = study.sharing_parameters(net, 2)
    norm = study.add_gradients(replicas, X, y, len(y))
    found, right = ([p.grad for p in m.parameters()] for m in (net, parallel.module))
    assert distance(found, right) < 1e-12
    assert norm == pytest.approx(torch.cat([g.flatten() for g in right]).norm().item(), rel=1e-12)
    for a, b in zip(net.buffers(), parallel.module.buffers()):
        assert torch.equal(a, b)
    assert not torch.equal(replicas[1][1].running_mean, replicas[0][1].running_mean), "each keeps its own"
    assert all(a is b for a, b in zip(net.parameters(), replicas[1].parameters()))


def test_a_shard_without_examples_changes_no_statistics():
    replicas = study.sharing_parameters(resnet18(10, width=4), 2)
    study.add_gradients(replicas, torch.rand(1, 1, 28, 28), torch.tensor([3]), 1)
    assert [r[1].num_batches_tracked.item() for r in replicas] == [1, 0]


def test_a_step_is_that_of_sgd_on_the_mean_loss(monkeypatch):
    found, net = trained(BASE._replace(num_devices=1), size=TINY._replace(num_epochs=1))
    right = resnet18(10, width=TINY.width)
    initialize(right, 0, init_weights)
    right = right.to(memory_format=torch.channels_last)
    trainer = torch.optim.SGD(right.parameters(), 0.2)
    train_iter, _ = study.load_data_fashion_mnist(8, 22, 20, 0)
    for X, y in train_iter:
        trainer.zero_grad()
        F.cross_entropy(right(X), y).backward()
        trainer.step()
    assert distance(list(net.parameters()), list(right.parameters())) < 1e-5
    assert len(found["accuracies"]) == len(found["before_last"]) == len(found["gradient"]) == 1


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not():
    runs = [trained(BASE, seed) for seed in (0, 0, 1)]
    assert runs[0][0] == runs[1][0] and same_bits([list(net.parameters()) for _, net in runs[:2]])
    assert not torch.equal(runs[0][1][0].weight, runs[2][1][0].weight)


def test_a_used_network_has_the_weights_of_a_fresh_one_and_the_past_of_another():
    study._first.cache_clear()
    used, fresh = (study.starting_network(BASE._replace(start=start), 3, TINY) for start in ("used", "fresh"))
    past = study._first(3, TINY)[1]
    for (name, x), old, new in zip(used.state_dict().items(), past.state_dict().values(), fresh.state_dict().values()):
        is_weight = x.dim() > 1
        assert torch.equal(x, new if is_weight else old), name
    assert past[1].num_batches_tracked == 2 * 6  # two epochs of six minibatches, and untouched since
    trained(BASE._replace(start="used"), 3)
    assert past[1].num_batches_tracked == 2 * 6


def test_the_accuracy_before_the_last_step_is_that_of_a_training_without_it():
    """Dropped, the last epoch's accuracy before and after are the same; the first epoch's are those of a full one."""
    (full, _), (dropped, _) = trained(BASE), trained(BASE._replace(last="dropped"))
    assert dropped["accuracies"] == dropped["before_last"] and "stale" not in dropped
    assert full["before_last"][0] == dropped["before_last"][0]


def test_what_the_last_step_did_is_taken_apart(monkeypatch):
    calls = []

    def accuracy(replicas, test_iter):
        calls.append([copy.deepcopy(r.state_dict()) for r in replicas])
        return 0.0

    monkeypatch.setattr(study, "accuracy_in_turn", accuracy)
    _, net = trained(BASE, size=TINY._replace(num_epochs=1))
    before, after, own, fitting, fitting_before, new_parameters, new_statistics = calls
    assert [len(c) for c in calls] == [1, 1, 2, 1, 1, 1, 1]
    (before,), (after,) = before, after
    parameters, statistics = dict(net.named_parameters()), dict(net.named_buffers())
    for [state], p_of, s_of in ((new_parameters, after, before), (new_statistics, before, after),
                                (fitting, after, None), (fitting_before, before, None)):
        assert all(torch.equal(state[name], p_of[name]) for name in parameters)
        assert s_of is None or all(torch.equal(state[name], s_of[name]) for name in statistics)
        assert s_of is not None or not torch.equal(state["1.running_mean"], p_of["1.running_mean"])
    assert not torch.equal(before["0.weight"], after["0.weight"]) and torch.equal(after["0.weight"], net[0].weight)
    assert torch.equal(own[0]["1.running_mean"], after["1.running_mean"])
    assert not torch.equal(own[1]["1.running_mean"], after["1.running_mean"])


def test_recalibrated_statistics_are_the_mean_of_those_of_the_batches():
    torch.manual_seed(0)
    train_iter, _ = study.load_data_fashion_mnist(8, 140, 20, 0)
    norm = nn.BatchNorm2d(1)
    norm.running_mean += 5
    fresh = study.recalibrated(norm, train_iter)
    X = train_iter.images / 255
    assert fresh.running_mean.item() == pytest.approx(X.mean().item(), rel=1e-5)
    assert fresh.running_var.item() == pytest.approx(X.var().item(), rel=1e-5)
    assert norm.running_mean == 5 and norm.momentum == 0.1, "the network itself is left alone"
    assert study.apart(norm, fresh) == pytest.approx(((5 - X.mean()) / X.std()).item(), rel=1e-3)
    assert study.apart(norm, norm) == 0 and study.apart(nn.Linear(1, 1), nn.Linear(1, 1)) == 0


def test_group_normalisation_takes_the_place_of_every_batchnorm():
    net = study.starting_network(BASE._replace(norm="group"), 0, TINY)
    kinds = [type(m) for m in net.modules()]
    assert nn.BatchNorm2d not in kinds and kinds.count(nn.GroupNorm) == 17
    found, _ = trained(BASE._replace(norm="group"))
    assert found["stale"] == [0, 0] and found["recalibrated"] == found["accuracies"][-1]


def test_accuracy_counts_each_image_once_by_its_own_replica():
    class Says(nn.Module):
        def __init__(self, label):
            super().__init__()
            self.scores = nn.Parameter(F.one_hot(torch.tensor(label), 3).float())

        def forward(self, X):
            return self.scores.expand(len(X), 3)

    batches = [(torch.zeros(4, 1), torch.tensor([0, 0, 1, 2])), (torch.zeros(1, 1), torch.tensor([0]))]
    assert study.accuracy_in_turn([Says(0), Says(1)], batches) == 4 / 5
    assert study.accuracy_in_turn([Says(0)], batches) == 3 / 5


def test_a_setting_that_would_be_trained_otherwise_is_refused():
    for change, size, said in (({"last": "half"}, TINY, "last is one of full, damped, dropped, got 'half'"), ({"start": 1}, TINY, "start is one of"),
                               ({"norm": None}, TINY, "norm is one of"), ({"norm": "group", "start": "used"}, TINY, "starts fresh"),
                               ({"norm": "group"}, TINY._replace(width=2), "groups of four")):
        with pytest.raises(ValueError, match=said):
            run_setting(BASE._replace(**change), 0, size)


def test_a_study_has_a_record_of_every_setting_and_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "run_missing", lambda path, about, runs, function, n: calls.append((about, runs, function, n)))
    calls = []
    run_study(tmp_path / "x.jsonl", 3, TINY)
    [(about, runs, function, processes)] = calls
    assert len(runs) == 3 * (15 + 4) and processes >= 1 and about["size"] == TINY._asdict()
    assert about["data"]["num_train"] == 22 and "torch" in about["machine"]
    assert function(**runs[-1]) == run_setting(Setting(**runs[-1]["setting"]), 2, TINY)
    assert list(signature(study.run).parameters) == ["size", *runs[0]]


# the stored one


def test_the_stored_study_is_the_whole_plan_with_ten_seeds_on_real_data():
    about, records = stored_records("last_minibatch")
    planned = [*settings(), *predicted().values()]
    found = sorted((Setting(**r["run"]["setting"]), r["run"]["seed"]) for r in records)
    assert found == sorted((s, seed) for s in planned for seed in range(10))
    assert about["command"] == CALLED["python book/lab/study.py"] and about["size"] == SMALL._asdict()
    assert about["data"]["source"] == "Fashion-MNIST" and "cores" in about["machine"]["processor"]


def test_every_number_of_the_stored_study_can_be_one():
    for record in stored_records("last_minibatch")[1]:
        setting = Setting(**record["run"]["setting"])
        stepped = setting.last != "dropped" and setting.num_train % setting.batch_size
        assert ("stale" in record) == bool(stepped)
        assert all(len(record[name]) == 10 for name in ("accuracies", "before_last", "gradient", "last_gradient"))
        shares = [*record["accuracies"], *record["before_last"], record["own"], record["recalibrated"]]
        if stepped:
            shares += [record[name] for name in ("recalibrated_before", "new_parameters", "new_statistics")]
        assert all(0 <= share <= 1 and share * 1024 == round(share * 1024) for share in shares), "of 1,024 images"
        assert all(0 < norm < inf for norm in record["gradient"] + record["last_gradient"])
        if setting.last == "dropped":
            assert record["accuracies"] == record["before_last"]
        if setting.num_devices == 1:
            assert record["own"] == record["accuracies"][-1]


# what the stored study says, beside what its chapter draws


def stored(last="full", k=2, batch_size=32, start="fresh"):
    setting = Setting(last, start, k, batch_size, batch_size / 160, 3558)
    return [r for r in stored_records("last_minibatch")[1] if Setting(**r["run"]["setting"]) == setting]


def test_the_interval_of_ten_misses_the_median_in_one_case_in_fifty():
    draws = torch.randn(20_000, 10, generator=torch.Generator().manual_seed(0)).tolist()  # with the median 0
    missed = [low > 0 or high < 0 for low, high in map(median_interval, draws)]
    assert 0.018 < mean(missed) < 0.025 and median_interval([3, 1, 9, 7, 5, 0, 2, 8, 6, 4]) == (1, 8)


def test_the_last_step_does_its_harm_by_the_parameters_and_not_by_the_statistics():
    runs = stored()
    before, after = (mean(r[name][-1] for r in runs) for name in ("before_last", "accuracies"))
    assert before - after > 0.1
    assert abs(mean(r["new_statistics"] for r in runs) - before) < 0.005 > abs(mean(r["new_parameters"] for r in runs) - after)


def test_part_of_the_harm_are_statistics_that_no_longer_fit_and_a_damped_step_leaves_them_as_they_were():
    runs = stored()
    lost, stays = (mean(a - b for a, b in pairs) for pairs in (
        [(r["before_last"][-1], r["accuracies"][-1]) for r in runs],
        [(r["recalibrated_before"], r["recalibrated"]) for r in runs]))
    assert 0.25 < stays / lost < 0.8
    ratios = {last: [after / before for before, after in (r["stale"] for r in stored(last))] for last in ("full", "damped")}
    assert median(ratios["full"]) > 1.3 and max(ratios["damped"]) < 1.1


@pytest.mark.parametrize("place", [(1, 16), (2, 16), (1, 32), (2, 32), (2, 32, "used")])
def test_an_epoch_later_the_harm_is_repaired(place):
    before = [[mean(r["before_last"][3:]) for r in stored(last, *place)] for last in ("full", "damped")]
    low, high = median_interval([a - b for a, b in zip(*before)])
    assert -0.02 < low < 0 < high < 0.021


def test_group_normalisation_refutes_its_prediction_and_ten_seeds_do_not_refute_that_of_half_the_rate():
    def costs(setting):
        runs = sorted((r for r in stored_records("last_minibatch")[1] if Setting(**r["run"]["setting"]) == setting),
                      key=lambda r: r["run"]["seed"])
        return [mean(r["before_last"][3:]) - mean(r["accuracies"][3:]) for r in runs]

    usual = costs(Setting("full", "fresh", 2, 32, 0.2, 3558))
    intervals = {name: median_interval([a - b / 2 for a, b in zip(costs(predicted()[name]), usual)])
                 for name in ("half the learning rate", "group normalisation")}
    assert intervals["half the learning rate"][0] < 0 < 0.02 < intervals["group normalisation"][0]


def test_the_statistics_of_replica_0_cost_less_than_a_point():
    for last in ("full", "dropped"):
        low, high = median_interval([r["own"] - r["accuracies"][-1] for r in stored(last)])
        assert -0.01 < low <= high < 0.01


def test_the_longer_the_last_step_the_more_it_takes():
    steps = sorted((last / usual, before - after) for r in stored() for usual, last, before, after in list(
        zip(r["gradient"], r["last_gradient"], r["before_last"], r["accuracies"]))[3:])
    quarters = [mean(taken for _, taken in steps[i:i + 17]) for i in range(0, 68, 17)]
    assert quarters == sorted(quarters) and quarters[0] < 0.03 and quarters[-1] > 0.2
