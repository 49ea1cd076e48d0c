"""Tests of d2lpar.concise: a fresh start is one to the bit, every example counts once, and training is plain SGD."""


import pytest
import torch
from torch import nn

from d2lpar import concise, data
from d2lpar.concise import count_right, evaluate_accuracy_gpus, train_data_parallel, unwrap
from d2lpar.data_parallel import DataParallel
from d2lpar.models import LeNet, init_weights, initialize

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_core")


def convnet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, stride=3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(384, 10))


def bits(net):
    return [x.clone() for x in net.state_dict().values()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


# The start


def test_weights_of_linear_and_convolutional_layers_are_drawn_and_nothing_else_is_touched():
    class Special(nn.Linear):
        pass

    net = nn.Sequential(nn.Conv2d(8, 20, 5), nn.BatchNorm2d(20), nn.Linear(80, 50), Special(80, 50),
                        nn.Conv1d(8, 20, 5), nn.Embedding(60, 60), nn.Linear(3, 3, bias=False))
    with torch.no_grad():
        for x in net.state_dict().values():
            x.fill_(7)
    net.apply(init_weights)
    drawn = {"0.weight", "2.weight", "6.weight"}
    for name, x in net.state_dict().items():
        if name not in drawn:
            assert torch.equal(x, torch.full_like(x, 7)), name
    for name in ("0.weight", "2.weight"):  # 4,000 numbers: 5 sigma
        assert net.state_dict()[name].std().item() == pytest.approx(0.01, rel=0.06)
        assert net.state_dict()[name].mean().item() == pytest.approx(0, abs=8e-4)
    assert net[6].weight.abs().max() < 0.1


def test_a_fresh_start_forgets_all_that_training_left():
    fresh, used = convnet(), convnet()
    used[0].weight.requires_grad_(False)
    trainer = torch.optim.SGD([p for p in used.parameters() if p.requires_grad], 0.1)
    for _ in range(3):
        used(torch.rand(4, 1, 28, 28)).square().sum().backward()
        trainer.step()
    assert used[1].num_batches_tracked == 3
    initialize(fresh, init=init_weights)
    initialize(used, init=init_weights)
    assert same(bits(used), bits(fresh))
    assert used[1].num_batches_tracked == 0 and not used[1].running_mean.any() and (used[1].running_var == 1).all()
    assert [p.requires_grad for p in used.parameters()] == [False] + [True] * 5 and used.training
    assert used[-1].weight.std().item() == pytest.approx(0.01, rel=0.06)  # 3,840 numbers: 5 sigma
    assert used[-1].bias.any()  # as PyTorch makes them: not zero


def test_a_fresh_start_reaches_the_layers_within_layers():
    def nested():
        return nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(784, 4), nn.Sequential(nn.BatchNorm1d(4))))

    fresh, used = nested(), nested()
    used(torch.rand(8, 1, 28, 28))
    for net in (fresh, used):
        initialize(net)
    assert same(bits(used), bits(fresh))


def test_lenet_starts_afresh_too_and_each_seed_its_own_way():
    nets = [LeNet() for _ in range(3)]
    for net, seed in zip(nets, (5, 5, 6)):
        with torch.no_grad():
            for p in net.parameters():
                p.add_(1)
        initialize(net, seed)
    assert same(bits(nets[0]), bits(nets[1])) and not any(net.params[1].any() for net in nets)
    assert 0 < (nets[0].params[0] - nets[2].params[0]).abs().max() < 2


@pytest.mark.parametrize("net, name", [
    (nn.Sequential(nn.Linear(2, 2), nn.ParameterList([torch.ones(3)])), "1.0"), (nn.MultiheadAttention(4, 2), "in_proj_weight")])
def test_a_parameter_that_nobody_would_draw_is_refused_and_nothing_is_drawn(net, name):
    before = [x.clone() for x in bits(net)]
    with pytest.raises(ValueError, match=f"^{name} would not start afresh: give its module a method reset_parameters"):
        initialize(net)
    assert same(bits(net), before)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    nets = [convnet() for _ in range(4)]
    for net, seed in zip(nets, (5, 5, 6, 0)):
        initialize(net, seed)
    assert same(bits(nets[0]), bits(nets[1]))
    for name in ("0.weight", "0.bias", "4.weight"):
        assert not torch.equal(nets[0].state_dict()[name], nets[2].state_dict()[name])
    default = convnet()
    initialize(default)
    assert same(bits(default), bits(nets[3]))


def test_without_more_words_a_start_is_the_one_that_pytorch_gives_a_new_network():
    net = convnet()
    initialize(net, seed=3)
    torch.manual_seed(3)
    assert same(bits(net), bits(convnet()))


@pytest.mark.gpu
def test_the_start_on_a_gpu_has_the_bits_of_that_on_a_cpu():
    here, there = convnet(), convnet().to("cuda:0")
    for net in (here, there):
        initialize(net, seed=2, init=init_weights)
    assert same(bits(here), [x.cpu() for x in bits(there)])


def test_a_start_leaves_the_global_random_generator_alone():
    net, before = convnet(), torch.get_rng_state()
    initialize(net)
    assert torch.equal(torch.get_rng_state(), before)


# The accuracy


def test_a_wrapper_that_has_no_devices_is_taken_where_its_module_lies():
    net = DataParallel(convnet(), [CPU] * 2)
    net.device_ids = None  # as those of DistributedDataParallel on a CPU
    assert unwrap(net, None) == (net.module, [CPU])


def judge():
    """A net that training mode would spoil, images, labels that it gets right or wrong, and the right share."""
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Dropout(0.8), nn.Linear(12, 10)).double()
    net[1].running_mean.normal_(generator=generator)
    net[1].running_var.uniform_(0.1, 2, generator=generator)
    X = torch.rand(37, 1, 3, 4, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        predicted = net.eval()(X).argmax(1)
    net.train()
    y = torch.where(torch.arange(37) % 3 == 0, predicted, (predicted + 1) % 10)
    y[:5] = predicted[:5]  # more right ones in front, so that a mean over batches would show
    right = (y == predicted).sum().item()
    assert right == 16
    return net, X, y, right / 37


def batches(X, y, size):
    return list(zip(X.split(size), y.split(size)))


@pytest.mark.parametrize("size", [1, 2, 9, 16, 37])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_the_accuracy_is_exactly_that_of_one_device(k, size):
    net, X, y, share = judge()
    assert evaluate_accuracy_gpus(DataParallel(net, [CPU] * k), batches(X, y, size)) == share
    assert evaluate_accuracy_gpus(net, batches(X, y, size), devices=[CPU] * k) == share


def test_a_plain_module_is_evaluated_where_it_is_and_torchs_data_parallel_too(monkeypatch):
    net, X, y, share = judge()
    asked = []
    monkeypatch.setattr(concise, "count_right", lambda net, X, y: asked.append(net) or count_right(net, X, y))
    assert evaluate_accuracy_gpus(net, batches(X, y, 16)) == share
    assert evaluate_accuracy_gpus(nn.DataParallel(net), batches(X, y, 16)) == share
    assert all(type(module) is nn.Sequential for module in asked)  # not torch's, which would scatter again


def test_a_split_of_the_readers_own_is_used():
    net, X, y, share = judge()

    def all_to_the_last(X, y, devices):
        assert devices == [CPU] * 3
        return [X[:0], X[:0], X], [y[:0], y[:0], y]

    def only_right_ones(X, y, devices):
        return [X[:1]] * 3, [y[:1]] * 3

    parallel = DataParallel(net, [CPU] * 3)
    assert evaluate_accuracy_gpus(parallel, batches(X, y, 16), all_to_the_last) == share
    assert evaluate_accuracy_gpus(parallel, batches(X, y, 37), split_f=only_right_ones) == 3 / 37


def test_count_right_counts_also_an_empty_shard():
    net, X, y, _ = judge()
    assert count_right(net.eval(), X, y) == 16 and count_right(net, X[:0], y[:0]) == 0
    assert type(count_right(net, X, y)) is int
    net[0].register_forward_hook(lambda m, x, out: 1 / len(out))  # some nets cannot do without an example
    assert count_right(net, X[:0], y[:0]) == 0


@pytest.mark.parametrize("fails", [None, "net", "split"])
@pytest.mark.parametrize("training", ["all", "none", "some"])
def test_every_layer_stays_in_its_mode_also_after_a_fault(training, fails):
    net, X, y, share = judge()
    net.train(training != "none")
    if training == "some":
        net[1].eval()  # a frozen BatchNorm
    modes = [m.training for m in net.modules()]
    parallel = DataParallel(net, [CPU] * 3)
    parallel.training = not net.training  # its own flag says nothing about the module
    before, seen = bits(net), []
    if fails == "net":
        X = X[..., :3]
    if fails == "split":
        with pytest.raises(ZeroDivisionError):
            evaluate_accuracy_gpus(parallel, batches(X, y, 16), lambda X, y, devices: 1 / 0)
    elif fails == "net":
        with pytest.raises(RuntimeError) as error:
            evaluate_accuracy_gpus(parallel, batches(X, y, 16))
        assert error.value.__notes__ == ["raised on rank 0 of 3 devices"]
    else:
        net[0].register_forward_hook(lambda m, x, out: seen.append((m.training, torch.is_grad_enabled())))
        assert evaluate_accuracy_gpus(parallel, batches(X, y, 16)) == share
        assert set(seen) == {(False, False)} and len(seen) == 9
    assert [m.training for m in net.modules()] == modes
    assert same(bits(net), before) and all(p.grad is None for p in net.parameters())
    assert torch.is_grad_enabled()


# A whole training


@pytest.mark.parametrize("k", [1, 2, 3])
def test_training_learns_and_gives_its_record(small_data, k):
    net = convnet()
    training = train_data_parallel(net, k, 32, 0.2, num_epochs=4)
    assert len(training.epoch_s) == len(training.accuracies) == 4
    assert all(seconds > 0 for seconds in training.epoch_s)
    assert training.accuracies[-1] > 0.5  # by chance 0.1; over 15 seeds 0.64 and more
    assert net[1].num_batches_tracked == 4 * 5  # on every batch in training mode, at no test image
    assert all(p.requires_grad for p in net.parameters())
    assert evaluate_accuracy_gpus(net, data.load_data_fashion_mnist(32)[1]) == training.accuracies[-1]


@pytest.mark.parametrize("k, bound", [(1, 0), (2, 1e-5), (3, 1e-5)])
def test_training_is_plain_sgd_on_the_mean_loss_from_the_fresh_start(small_data, k, bound):
    def plain_net():
        return nn.Sequential(nn.Conv2d(1, 6, 5, stride=3), nn.Tanh(), nn.Flatten(), nn.Linear(384, 10))

    net, oracle = plain_net(), plain_net()
    training = train_data_parallel(net, k, 32, 0.2, num_epochs=2, seed=3)
    initialize(oracle, seed=3)
    train_iter, test_iter = data.load_data_fashion_mnist(32, seed=3)
    trainer = torch.optim.SGD(oracle.parameters(), 0.2)
    for _ in range(2):
        for X, y in train_iter:
            trainer.zero_grad()
            nn.functional.cross_entropy(oracle(X), y).backward()
            trainer.step()
    for p, q in zip(net.parameters(), oracle.parameters()):
        assert (p - q).norm() <= bound * q.norm()  # sums in another order in float32, ten steps
    if k == 1:
        assert training.accuracies[-1] == evaluate_accuracy_gpus(oracle, test_iter)


@pytest.mark.gpu
def test_on_gpus_too_the_accuracy_is_that_of_one_device_and_training_learns(small_data):
    net, X, y, share = judge()
    gpu = torch.device("cuda", 0)
    count = torch.cuda.device_count()
    for parallel in (DataParallel(net.to(gpu), [0, 1, 2]), net, nn.DataParallel(net, list(range(count)))):
        assert evaluate_accuracy_gpus(parallel, batches(X, y, 16)) == share
    assert train_data_parallel(convnet(), count + 1, 32, 0.2, num_epochs=4).accuracies[-1] > 0.5
