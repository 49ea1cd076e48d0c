"""Tests of d2lpar.batchnorm: shards with the statistics of the whole, both ways; and no rank waits for ever."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from d2lpar.batchnorm import SyncBatchNorm, combine_moments, convert_batchnorm, moments
from d2lpar.data_parallel import DataParallel, replicate
from d2lpar.devices import run_on_devices, try_devices
from d2lpar.models import resnet18
from d2lpar.scratch import distance, same_bits
from helpers.modules import Picky, Refuse99, known, rand

pytestmark = [pytest.mark.usefixtures("one_core"), pytest.mark.timeout(60)]  # a hang must end soon

# sizes of the shards of 1, 2, 3 and 5 ranks: equal, unequal, empty, of one example
CUTS = [[12], [6, 6], [5, 7], [4, 4, 4], [1, 3, 8], [12, 0, 0], [0, 7, 5], [2, 3, 2, 3, 2], [0, 1, 0, 11, 0]]


def layer(cls, channels=3, **settings):
    return known(cls(channels, **settings).double())


def on_shards(norm, shards, grads):
    """Forward and backward on a replica for each shard: outputs, input gradients, parameter gradients, and replicas."""
    replicas = [replicate(norm, torch.device("cpu")) for _ in shards]
    inputs = [shard.clone().requires_grad_() for shard in shards]
    outputs = run_on_devices(lambda replica, x: replica(x), replicas, inputs)
    run_on_devices(torch.autograd.backward, outputs, grads)
    of_params = [[p.grad for p in replica.parameters()] for replica in replicas]
    return outputs, [x.grad for x in inputs], of_params, replicas


def on_the_whole(norm, x, grad):
    x = x.clone().requires_grad_()
    out = norm(x)
    out.backward(grad)
    return out, x.grad, [p.grad for p in norm.parameters()]


def assert_as_the_whole(norm, plain, sizes, x, grad):
    shards, grads = x.split(sizes), grad.split(sizes)
    outputs, of_inputs, of_params, replicas = on_shards(norm, shards, grads)
    whole, of_input, of_whole = on_the_whole(plain, x, grad)
    assert distance([torch.cat(outputs), torch.cat(of_inputs)], [whole, of_input]) < 1e-10
    if of_whole:
        assert distance([sum(parts) for parts in zip(*of_params)], of_whole) < 1e-10
    for replica in replicas:
        if list(plain.buffers()):
            assert distance(list(replica.buffers()), list(plain.buffers())) < 1e-10
            assert same_bits([list(replica.buffers()), list(replicas[0].buffers())])
    return replicas[0]


# By hand


def test_three_numbers_on_two_devices_have_the_mean_and_the_variance_of_all_three():
    norm = SyncBatchNorm(1, eps=0, affine=False).double()
    shards = [torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[6.0]]).double()]
    outputs = run_on_devices(lambda x, replica: replica(x), shards, [copy.deepcopy(norm), norm])
    # mean 3, squares 4 + 1 + 9 = 14
    root = (14 / 3) ** 0.5
    assert torch.cat(outputs).flatten().tolist() == pytest.approx([-2 / root, -1 / root, 3 / root], rel=1e-14)
    assert norm.running_mean.item() == pytest.approx(0.3)
    assert norm.running_var.item() == pytest.approx(0.9 + 0.1 * 7), "14 / 2, unbiased"


def test_the_moments_of_two_shards_by_hand():
    parts = [moments(torch.tensor([[1.0], [2.0]])), moments(torch.tensor([[6.0]])), moments(torch.ones(0, 1))]
    assert parts == [(2, 1.5, 0.5), (1, 6, 0), (0, 0, 0)]
    assert combine_moments(*zip(*parts)) == (3, 3, 14)
    assert combine_moments([0, 0], [torch.zeros(1)] * 2, [torch.zeros(1)] * 2) == (0, 0, 0)


def test_the_four_numbers_of_the_chapter_have_its_outputs_and_gradients():
    def outputs_and_gradients(shards, grads, norm):
        outputs, of_inputs, *_ = on_shards(norm, [torch.tensor(shard).double().unsqueeze(1) for shard in shards], grads)
        return [torch.cat(parts).flatten().tolist() for parts in (outputs, of_inputs)]

    first_output = [torch.tensor([[1.0], [0.0]]).double(), torch.zeros(2, 1).double()]
    norm = SyncBatchNorm(1, eps=0, affine=False).double()
    outputs, grads = outputs_and_gradients([[3, 9], [11, 17]], first_output, norm)
    assert outputs == pytest.approx([-1.4, -0.2, 0.2, 1.4])
    assert grads == pytest.approx([0.052, -0.064, -0.036, 0.048])
    raised, _ = outputs_and_gradients([[3, 9], [11, 18]], first_output, norm)
    assert raised == pytest.approx([-1.35, -0.23, 0.14, 1.45], abs=0.005)
    by_shard = [nn.BatchNorm1d(1, eps=1e-12, affine=False)(torch.tensor(shard)[:, None]) for shard in ([3.0, 9.0], [11.0, 17.0])]
    assert torch.cat(by_shard).flatten().tolist() == pytest.approx([-1, 1, -1, 1])


# Moments


@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (2, 2, 2)])
def test_moments_combined_are_those_of_the_whole(sizes, shape):
    x = rand(12, 3, *shape) + 7
    count, mean, squares = combine_moments(*zip(*[moments(shard) for shard in x.split(sizes)]))
    flat = x.transpose(0, 1).flatten(1)
    assert count == flat.shape[1]
    assert distance([mean, squares / count], [flat.mean(1), flat.var(1, correction=0)]) < 1e-12


@pytest.mark.parametrize("sizes", CUTS)
def test_a_mean_of_ten_thousand_does_not_swallow_a_variance_of_one_in_float32(sizes):
    x = (torch.randn(12, 2, 400, generator=torch.Generator().manual_seed(0)) + 1e4).float()
    right = x.double().transpose(0, 1).flatten(1)
    count, _, squares = combine_moments(*zip(*[moments(shard) for shard in x.split(sizes)]))
    assert distance([squares / count], [right.var(1, correction=0)]) < 1e-4
    naive = x.square().sum((0, 2)) / count - (x.sum((0, 2)) / count).square()
    assert distance([naive], [right.var(1, correction=0)]) > 1, "the case is too easy"
    replicas = [SyncBatchNorm(2, affine=False) for _ in sizes]
    out = torch.cat(run_on_devices(lambda m, shard: m(shard), replicas, x.split(sizes)))
    assert distance([out], [F.batch_norm(x.double(), None, None, training=True)]) < 2e-3, "at 1e4, float32 has steps of 1e-3"


# A layer, forward and backward


@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize("plain, shape", [
    (nn.BatchNorm1d, ()), (nn.BatchNorm1d, (5,)), (nn.BatchNorm2d, (4, 3)), (nn.BatchNorm3d, (2, 2, 2))])
def test_shards_give_the_outputs_gradients_and_statistics_of_the_whole_batch(sizes, plain, shape):
    x, grad = rand(12, 3, *shape) * 3 + 1, rand(12, 3, *shape, seed=1)
    assert_as_the_whole(layer(SyncBatchNorm), layer(plain), sizes, x, grad)


@pytest.mark.parametrize("settings", [
    {"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"momentum": 0.7, "eps": 0.1},
    {"affine": False, "track_running_stats": False}])
@pytest.mark.parametrize("sizes", [[12], [5, 7], [0, 7, 5]])
def test_the_settings_mean_what_they_mean_in_pytorch_over_three_steps(sizes, settings):
    norm, plain = layer(SyncBatchNorm, **settings), layer(nn.BatchNorm2d, **settings)
    for step in range(3):
        x, grad = rand(12, 3, 4, 2, seed=step) + step, rand(12, 3, 4, 2, seed=9)
        plain.zero_grad()
        norm = assert_as_the_whole(norm, plain, sizes, x, grad)


@pytest.mark.parametrize("mode", ["eval", "frozen", "no buffers"])
def test_evaluation_is_that_of_pytorch_and_no_rank_waits(mode):
    norm, plain = layer(SyncBatchNorm).eval(), layer(nn.BatchNorm2d).eval()
    for m in (norm, plain):
        if mode == "frozen":  # both are ways in which people freeze or drop the running statistics
            m.track_running_stats = False
        if mode == "no buffers":
            m.running_mean = m.running_var = None
    x, grad = rand(12, 3, 4, 2), rand(12, 3, 4, 2, seed=1)
    if mode == "no buffers":
        assert_as_the_whole(norm, plain, [5, 7], x, grad)
        return
    out, of_input, of_params = on_the_whole(norm, x, grad)
    whole, right, of_whole = on_the_whole(plain, x, grad)
    assert same_bits([[out, of_input, *of_params, *norm.buffers()], [whole, right, *of_whole, *plain.buffers()]])
    shards = x.split([2, 0, 10])
    alone = run_on_devices(lambda rank: norm(shards[rank]) if rank == 2 else None, range(3))
    assert distance([alone[2]], [whole[2:]]) < 1e-12


def test_statistics_that_are_not_tracked_are_neither_used_nor_changed_in_training():
    norm, plain = layer(SyncBatchNorm), layer(nn.BatchNorm2d)
    norm.track_running_stats = plain.track_running_stats = False
    before = [b.clone() for b in norm.buffers()]
    assert_as_the_whole(norm, plain, [5, 7], rand(12, 3, 4, 2), rand(12, 3, 4, 2, seed=1))
    assert same_bits([list(norm.buffers()), before])


def test_a_second_derivative_is_refused():
    x = rand(4, 3).requires_grad_()
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(layer(SyncBatchNorm)(x).square().sum(), x, create_graph=True)


def test_all_ranks_have_the_same_bits_in_their_statistics_in_float32():
    norm, x = SyncBatchNorm(5), torch.rand(23, 5, 7, 7, generator=torch.Generator().manual_seed(0))
    *_, replicas = on_shards(norm, x.split([9, 3, 0, 11]), x.split([9, 3, 0, 11]))
    assert same_bits([list(replica.buffers()) for replica in replicas])
    assert replicas[0].num_batches_tracked == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_are_summed_as_float32_and_come_back_short(dtype):
    x = (rand(12, 3, 20, 20).float() + 5).to(dtype)
    out = torch.cat(run_on_devices(lambda x: SyncBatchNorm(3)(x), x.split([5, 7])))
    assert out.dtype is dtype
    assert distance([out], [F.batch_norm(x.double(), None, None, training=True)]) < 1e-2


# A network


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 9])
def test_a_resnet_on_k_devices_is_the_resnet_on_one_worker_after_every_step(k):
    net = known(resnet18(3, width=2).double())
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name.endswith("bias") and isinstance(net.get_submodule(name.rpartition(".")[0]), nn.Conv2d):
                p.requires_grad_(False)  # BatchNorm subtracts it: its gradient is zero, and here rounding
    sync = convert_batchnorm(copy.deepcopy(net))
    parallel = DataParallel(sync, try_devices(k))
    for step in range(2):
        X, y = rand(7, 1, 12, 12, seed=step), torch.arange(7) % 3
        results = []
        for model, own in ((parallel, sync), (net, net)):
            x = X.clone().requires_grad_()
            own.zero_grad()
            F.cross_entropy(model(x), y).backward()
            grads = [p.grad for p in own.parameters() if p.requires_grad]
            assert min(grad.norm() for grad in grads) > 0
            results.append([x.grad, *grads, *own.buffers()])
            with torch.no_grad():
                for p in own.parameters():
                    if p.requires_grad:
                        p -= 0.1 * p.grad
        assert distance(*results) < 1e-10


def test_one_meeting_for_each_layer_forward_and_one_backward(monkeypatch):
    from d2lpar import batchnorm

    met, real = [], batchnorm.all_gather_here
    monkeypatch.setattr(batchnorm, "all_gather_here", lambda x: (met.append(len(x)), real(x))[1])
    parallel = DataParallel(nn.Sequential(SyncBatchNorm(6), nn.Tanh(), SyncBatchNorm(6)).double(), try_devices(3))
    for is_input_trained, backward in ((True, [12] * 6), (False, [12] * 3)):  # of data nobody asks for a gradient
        met.clear()
        out = parallel(rand(9, 6).requires_grad_(is_input_trained))
        assert met == [13] * 6, "a count, 6 means, 6 sums of squares; 2 layers, 3 ranks"
        out.square().sum().backward()
        assert met[6:] == backward


# What is wrong


def test_one_value_per_channel_in_the_whole_batch_is_refused_and_changes_nothing():
    norm = layer(SyncBatchNorm)
    before = [b.clone() for b in norm.buffers()]
    parallel = DataParallel(norm, try_devices(2))
    with pytest.raises(ValueError, match="training needs more than one value per channel, got 1 over all ranks"):
        parallel(rand(1, 3))
    with pytest.raises(ValueError, match="got 1 over all ranks") as error:
        run_on_devices(lambda x: layer(SyncBatchNorm)(x), rand(1, 3).split([0, 1]))
    assert error.value.__notes__ == ["raised on rank 0 of 2 devices"]
    assert same_bits([list(norm.buffers()), before])
    assert parallel(rand(2, 3)).shape == (2, 3), "one value for each of two ranks is enough"


@pytest.mark.parametrize("x, words", [
    (torch.ones(4, 1), "expected a floating-point tensor with 3 channels, got a tensor of shape .4, 1. and torch.float32"),
    (torch.ones(4, 3, dtype=torch.int64), "floating-point"), (torch.ones(3), "3 channels")])
def test_an_input_that_does_not_fit_is_refused_and_releases_the_other_ranks(x, words):
    with pytest.raises(ValueError, match=words) as error:
        run_on_devices(lambda x: SyncBatchNorm(3)(x), [torch.ones(4, 3), x, torch.ones(4, 3)])
    assert error.value.__notes__ == ["raised on rank 1 of 3 devices"]


@pytest.mark.parametrize("bad, place", [(float("nan"), "forward"), (99.0, "backward")])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_replica_that_raises_releases_the_others_and_its_own_error_is_reported(bad, place, rank):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = SyncBatchNorm(2), SyncBatchNorm(2)

        def forward(self, x):
            h = self.first(x)
            if x.isnan().any():
                raise FloatingPointError("NaN in the batch")
            return self.last(Refuse99.apply(h, x))

    net, x = known(Net().double()), rand(6, 2)
    before = [b.clone() for b in net.buffers()]
    parallel = DataParallel(net, try_devices(3))
    x[2 * rank] = bad
    with pytest.raises(FloatingPointError) as error:
        parallel(x).square().sum().backward()
    assert error.value.__notes__ == [f"raised on rank {rank} of 3 devices"]
    assert all(p.grad is None for p in net.parameters())
    assert same_bits([list(net.buffers()), before]) == (place == "forward")
    parallel(rand(6, 2)).square().sum().backward()  # and the next step works
    assert net.first.weight.grad is not None


def test_a_backward_pass_that_not_all_ranks_run_at_once_is_refused_and_does_not_hang():
    x = rand(6, 3).requires_grad_()
    outputs = run_on_devices(lambda shard: layer(SyncBatchNorm)(shard), x.split([3, 3]))
    with pytest.raises(RuntimeError, match="the forward pass ran on 2 ranks at once, but the backward pass does not"):
        torch.cat(outputs).sum().backward()


def test_ranks_in_different_layers_are_told_so():
    norms = [SyncBatchNorm(2), SyncBatchNorm(3)]
    with pytest.raises(ValueError, match=r"not in the same layer: they sent \[5, 7\] values"):
        run_on_devices(lambda norm: norm(torch.ones(4, norm.num_features)), norms)


# Converted


def test_a_converted_network_keeps_its_parameters_statistics_hooks_and_mode():
    seen = []
    net = known(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, eps=0.1, momentum=None), Picky().norm)).eval()
    net.append(net[1])
    net[1].register_forward_hook(lambda *args: seen.append(1))
    before, places = net.state_dict(keep_vars=True), [id(m) for m in net.modules()]
    assert convert_batchnorm(net) is net
    assert [type(m) for m in net] == [nn.Linear, SyncBatchNorm, SyncBatchNorm, SyncBatchNorm]
    assert net[3] is net[1] and not net[1].training and (net[1].eps, net[1].momentum) == (0.1, None)
    assert {name: id(x) for name, x in net.state_dict(keep_vars=True).items()} == {name: id(x) for name, x in before.items()}
    assert places == [id(m) for m in net.modules()]
    net[1](rand(3, 4).float())
    assert seen == [1]
    assert convert_batchnorm(nn.BatchNorm2d(3)).__class__ is SyncBatchNorm, "a layer on its own, too"
    assert convert_batchnorm(net) is net, "again"


class Odd(nn.BatchNorm1d):
    pass


@pytest.mark.parametrize("odd", [nn.LazyBatchNorm2d(), Odd(3)])
def test_what_cannot_be_converted_is_named_and_nothing_is(odd):
    net = nn.Sequential(nn.BatchNorm1d(3), odd)
    with pytest.raises(ValueError, match=f"1 has the type {type(odd).__name__}, which may do something other"):
        convert_batchnorm(net)
    assert type(net[0]) is nn.BatchNorm1d


# In processes


def a_step_in_a_process(rank, net, X, y, sizes):
    """Gradients and statistics of one rank, by hand and by DistributedDataParallel; and of virtual devices in a rank."""
    found = []
    for wrap in (lambda m: m, nn.parallel.DistributedDataParallel):
        own = copy.deepcopy(net)
        model = wrap(own)  # kept until the backward pass, or its hooks are gone
        out = model(X.split(sizes)[rank])
        (F.cross_entropy(out, y.split(sizes)[rank], reduction="sum") / len(y)).backward()
        found.append([*[p.grad for p in own.parameters()], *own.buffers()])
    try:
        run_on_devices(copy.deepcopy(net), X.split(sizes))
        refused = ""
    except RuntimeError as error:
        refused = str(error)
    one_device = run_on_devices(copy.deepcopy(net), [X.split(sizes)[rank]])[0]  # in its thread, but the same rank
    return found, refused, one_device.detach()


@pytest.mark.timeout(240)
def test_two_processes_have_the_gradients_and_statistics_of_one_worker(group_of):
    net = known(nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).double())
    X, y = rand(7, 1, 6, 6), torch.arange(7) % 3
    plain, sync = copy.deepcopy(net), convert_batchnorm(copy.deepcopy(net))
    out = plain(X)
    F.cross_entropy(out, y).backward()
    right, statistics = [p.grad for p in plain.parameters()], list(plain.buffers())
    ranks = group_of(2).run(a_step_in_a_process, sync, X, y, [5, 2], timeout_s=200)
    by_hand, by_ddp = ([found[way] for found, *_ in ranks] for way in (0, 1))
    assert distance([a + b for a, b in zip(*by_hand)][:len(right)], right) < 1e-10
    for found in by_ddp:  # divides by the number of processes
        assert distance([2 * x for x in found[:len(right)]], right) < 1e-10
    for found in by_hand + by_ddp:
        assert distance(found[len(right):], statistics) < 1e-10
    for _, refused, _ in ranks:
        assert refused.startswith("2 virtual devices in each of 2 processes")
    assert distance([torch.cat([one for *_, one in ranks])], [out]) < 1e-10


@pytest.mark.gpu
@pytest.mark.timeout(120, method="thread")
@pytest.mark.parametrize("k", [1, 2, 3])
def test_gpus_and_virtual_devices_of_them_have_the_outputs_and_gradients_of_the_whole(k):
    device = torch.device("cuda", 0)
    X, grad, norm = rand(6, 3, 4, 4).to(device), rand(6, 3, 4, 4, seed=1).to(device), layer(SyncBatchNorm).to(device)
    found = []
    for net, module in ((norm, DataParallel(norm, try_devices(k))), (whole := copy.deepcopy(norm), whole)):
        leaf = X.clone().requires_grad_()
        out = module(leaf)
        (out * grad).sum().backward()
        found.append([out, leaf.grad, *[p.grad for p in net.parameters()], *net.buffers()])
    assert distance(*found) < 1e-10


@pytest.mark.gpu
def test_a_backward_pass_in_the_gpus_own_thread_says_what_to_do():
    device = torch.device("cuda", 0)
    X, layers = rand(6, 3, 4, 4).to(device).requires_grad_(), [layer(SyncBatchNorm).to(device) for _ in range(2)]
    outs = run_on_devices(lambda norm, x: norm(x), layers, list(X.chunk(2)))
    with pytest.raises(RuntimeError, match="Run the backward pass with run_on_devices too"):
        torch.cat(outs).square().sum().backward()


@pytest.mark.gpu
@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs NCCL")
def test_on_a_gpu_the_layer_is_pytorchs_own_one():
    device = torch.device("cuda", 0)
    X, grad = rand(6, 3, 4, 4).to(device), rand(6, 3, 4, 4, seed=1).to(device)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        results = [on_the_whole(layer(cls).to(device), X, grad) for cls in (SyncBatchNorm, nn.SyncBatchNorm)]
    finally:
        dist.destroy_process_group()
    ours, theirs = ([out, of_input, *of_params] for out, of_input, of_params in results)
    assert distance(ours, theirs) < 1e-10
