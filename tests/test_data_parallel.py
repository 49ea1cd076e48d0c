"""Tests of d2lpar.data_parallel: any module on k devices is the plain module, both ways; a fault changes nothing.

First a few numbers to follow by hand, then the pieces, then any module. Where each replica sees only its shard
(BatchNorm in training), the oracle is a plain loop over copies of the module.
"""

import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

from d2lpar.data_parallel import DataParallel, gather, replicate, scatter
from d2lpar.devices import run_on_devices, try_devices
from helpers.modules import Apply, Picky, convnet, known, mlp, rand
from helpers.plain_modules import (
    assert_close,
    check_equals_plain,
    gradients,
    same,
    state,
    weighted,
)
from helpers.waiting import until

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_core")


# By hand


def test_three_numbers_on_three_devices_are_multiplied_by_one_weight_whose_gradient_is_their_sum():
    net = Apply(lambda m, x: x * m.w, w=torch.tensor([10.0]))
    out = DataParallel(net, [CPU] * 3)(torch.tensor([[1.0], [2.0], [4.0]]))
    assert out.tolist() == [[10], [20], [40]]
    out.sum().backward()
    assert net.w.grad.tolist() == [1 + 2 + 4]


def test_the_gradients_are_summed_in_rank_order():
    big = torch.tensor([1e16, 1.0, -1e16, 1.0], dtype=torch.float64)[:, None]
    net = Apply(lambda m, x: x * m.w, w=torch.ones(1, dtype=torch.float64))
    DataParallel(net, [CPU] * 4)(big).sum().backward()
    assert net.w.grad.item() == 1.0  # ((1e16 + 1) - 1e16) + 1; in another order 0 or 2


def test_parameters_whose_gradients_are_one_tensor_in_a_replica_are_summed_apart():
    net = Apply(lambda m, x: x.mean() + m.a + m.b, a=rand(), b=rand())
    out = DataParallel(net, [CPU] * 3)(rand(7, 6))
    out.retain_grad()
    (out * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert [net.a.grad.item(), net.b.grad.item()] == [111, 111]
    assert out.grad.tolist() == [1, 10, 100]  # an incoming gradient is not ours to change
    net.a.grad.zero_()
    assert net.b.grad == 111


# The pieces


@pytest.mark.parametrize("n, k", [(7, 1), (7, 2), (7, 3), (7, 5), (2, 4), (6, 4), (0, 3)])
@pytest.mark.parametrize("dim", [0, 1])
def test_scatter_cuts_every_tensor_as_chunk_does_and_gives_the_rest_to_all(n, k, dim):
    X, t = rand(n, n, 2), torch.tensor(3.0)
    shards = scatter({"X": (X, [t]), "rest": ["ja", None, 4]}, [CPU] * k, dim)
    assert same([shard["X"][0] for shard in shards], list(X.chunk(k, dim)))
    assert torch.equal(gather([shard["X"][0] for shard in shards], CPU, dim), X)
    for shard in shards:
        assert shard["X"][1][0] is t and shard["rest"] == ["ja", None, 4]
        shard["rest"].append("own")  # every device has lists of its own
        assert len(shard["rest"]) == 4


def test_a_replica_has_the_same_bits_in_memory_of_its_own():
    net = convnet()
    net[0].weight.requires_grad_(False)
    net[4].register_parameter("again", net[0].weight)
    net[4].register_buffer("mean_again", net[1].running_mean)
    net[1].eval()
    net[4].weight.grad = torch.ones_like(net[4].weight)
    before = state(net)
    own = replicate(net, CPU)
    assert type(own) is type(net) and list(own.state_dict()) == list(net.state_dict())
    for ours, theirs in zip((*own.parameters(), *own.buffers()), (*net.parameters(), *net.buffers()), strict=True):
        assert torch.equal(ours, theirs) and type(ours) is type(theirs)
        assert ours.data_ptr() != theirs.data_ptr()
        assert ours.is_leaf and ours.requires_grad == theirs.requires_grad and ours.grad is None
    assert own[4].again is own[0].weight and own[4].mean_again is own[1].running_mean
    assert [m.training for m in own.modules()] == [m.training for m in net.modules()]
    with torch.no_grad():
        for x in own.state_dict().values():
            x.zero_()
    assert same(state(net), before)
    elsewhere = replicate(net, torch.device("meta"))
    assert all(x.device.type == "meta" for x in (*elsewhere.parameters(), *elsewhere.buffers()))


# The same outputs and gradients as the plain module


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 7, 16])
def test_outputs_and_gradients_are_the_plain_modules_for_every_batch_size(k, batch_size):
    check_equals_plain(mlp(), k, rand(batch_size, 6).requires_grad_())


@pytest.mark.parametrize("change", ["freeze", "replace"])
def test_a_change_between_forward_and_backward_does_not_mix_the_gradients_up(change):
    net, X = mlp(), rand(5, 6)
    params = list(net.parameters())
    oracle = torch.autograd.grad(weighted(net(X)), params)
    loss = weighted(DataParallel(net, [CPU] * 2)(X))
    if change == "freeze":
        net[0].requires_grad_(False)
    else:
        net[0] = nn.Linear(6, 8).double()
    loss.backward()
    assert_close([p.grad for p in params[2:]], list(oracle[2:]))
    if change == "replace":  # what a frozen parameter still gets is left open
        assert_close([p.grad for p in params[:2]], list(oracle[:2]))


@pytest.mark.parametrize("user", [0, 1, 2])
def test_an_output_that_depends_on_a_parameter_in_one_replica_only_has_a_gradient(user):
    net = Apply(lambda m, x: x * m.w if x[0, 0] == user else x * 2, w=rand(2))
    X = torch.arange(3.0, dtype=torch.float64).repeat_interleave(2)[:, None].expand(6, 2) + 0
    weighted(DataParallel(net, [CPU] * 3)(X)).backward()
    assert_close(net.w.grad, (rand(6, 2, seed=50) * X)[2 * user:2 * user + 2].sum(0))


# Any inputs and outputs


def test_one_tensor_given_twice_gets_both_gradients():
    X = rand(7, 6)
    net = Apply(lambda m, a, b: a * m.w + b.square(), w=rand(6))
    plain, own = X.clone().requires_grad_(), X.clone().requires_grad_()
    weighted(net(plain, plain)).backward()
    weighted(DataParallel(net, [CPU] * 3)(own, own)).backward()
    assert_close(own.grad, plain.grad)


def test_an_input_that_some_replicas_use_has_zeros_for_the_others():
    a, b = torch.arange(6.0, dtype=torch.float64)[:, None], rand(6, 1).requires_grad_()
    net = Apply(lambda m, a, b: a * m.w + (b if a[0] == 2 else 0), w=rand(1))
    weighted(DataParallel(net, [CPU] * 3)(a, b)).backward()
    expected = torch.zeros(6, 1, dtype=torch.float64)
    expected[2:4] = rand(6, 1, seed=50)[2:4]
    assert torch.equal(b.grad, expected)


def test_a_module_that_keeps_what_it_computed_without_its_graph_can_be_called_again():
    def fn(m, x):
        h = x * m.w
        m.kept, m.lists = h.detach(), {"all": [h.detach()]}
        m.shared.append(h.detach())
        m.counter, m.hidden = getattr(m, "counter", 0) + 1, x.sum()  # the inputs want no gradient
        return h

    net = Apply(fn, w=rand(6))
    net.shared = []
    parallel = DataParallel(net, [CPU] * 2)
    parallel(rand(5, 6))
    net.zero_grad()
    weighted(parallel(rand(5, 6))).backward()
    assert_close(net.w.grad, (rand(5, 6) * rand(5, 6, seed=50)).sum(0))
    assert len(net.shared) == 4


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_a_module_may_keep_what_it_likes(mode):
    net = Keeping(lambda m, h: setattr(m, "aux", h.square().sum()))
    with mode():
        assert_close(DataParallel(net, [CPU] * 2)(rand(4, 6)), net(rand(4, 6)))


# From call to call


def test_a_hundred_calls_give_the_same_bits():
    net, X = convnet(torch.float32), rand(11, 1, 6, 6, dtype=torch.float32)
    results = []
    for _ in range(100):
        own = copy.deepcopy(net)
        out = DataParallel(own, [CPU] * 4)(X)
        weighted(out).backward()
        results.append([out.detach(), *state(own)])
    assert all(same(result, results[0]) for result in results)


def test_replicas_run_at_the_same_time_each_in_the_thread_of_its_device_forwards_and_backwards():
    threads, all_here = [], threading.Barrier(3)

    class Meet(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            all_here.wait(20)
            threads.append(threading.current_thread().name)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return Meet.forward(None, grad)

    out = DataParallel(Apply(lambda m, x: Meet.apply(x * m.w), w=rand(6)), [CPU] * 3)(rand(7, 6))
    out.sum().backward()
    names = set(run_on_devices(lambda rank: threading.current_thread().name, range(3)))
    assert set(threads[:3]) == set(threads[3:]) == names


# No memory, no second time


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_it_can_be_copied_before_and_after_a_call(clone):
    X, parallel = rand(5, 1, 6, 6), DataParallel(convnet(), [CPU] * 2)
    for _ in range(2):
        parallel.zero_grad()
        other = clone(parallel)
        assert other.device_ids == parallel.device_ids and same(state(other.module), state(parallel.module))
        assert not {id(p) for p in other.parameters()} & {id(p) for p in parallel.parameters()}
        outs = [net(X) for net in (parallel, other)]
        for out in outs:
            weighted(out).backward()
        assert torch.equal(*outs) and same(state(other.module), state(parallel.module))


@pytest.mark.parametrize("backward", [False, True])
def test_nothing_of_a_call_is_kept_once_its_output_is_gone(backward):
    replicas, tensors = [], []
    layer = mlp()[0]

    def fn(m, x):
        replicas.append(weakref.ref(m[0]))
        y = m[0](x)
        tensors.extend([weakref.ref(x), weakref.ref(y), weakref.ref(m[0].weight)])
        return y

    class Spied(nn.Sequential):
        forward = fn

    net = Spied(layer)
    parallel, X = DataParallel(net, [CPU] * 3), rand(7, 6)
    before = set(map(id, (*vars(parallel).values(), *vars(net).values(), *vars(layer).values())))
    gc.disable()  # by themselves, not when the collector comes
    try:
        out = parallel(X)
        loss = out.sum()
        if backward:
            loss.backward()
        assert len(replicas) == 3 and all(ref() is not None for ref in replicas[1:])
        tensors.extend([weakref.ref(out), weakref.ref(X)])
        del out, loss, X
        # the device threads let go of their last call a moment later
        until(lambda: all(ref() in (None, layer) for ref in replicas))
        until(lambda: all(ref() is None or ref() is layer.weight for ref in tensors))
    finally:
        gc.enable()
    assert set(map(id, (*vars(parallel).values(), *vars(net).values(), *vars(layer).values()))) == before


# Dropout: the masks are random, but right


def test_dropout_masks_differ_between_shards_and_have_the_right_mean():
    out = DataParallel(nn.Dropout(0.5), [CPU] * 4)(torch.ones(80, 250))
    shards = out.tensor_split(4)
    assert not any(torch.equal(shards[a], shards[b]) for a in range(4) for b in range(a))
    assert set(out.unique().tolist()) == {0, 2}
    assert out.mean().item() == pytest.approx(1, abs=0.035)  # 20,000 numbers: 5 sigma


# Faults change nothing


def test_a_replica_that_fails_in_inference_mode_leaves_everything_as_it_was():
    net = known(Picky().double())
    before, X = state(net), rand(9, 6)
    X[4] = torch.nan
    with torch.inference_mode(), pytest.raises(FloatingPointError):
        DataParallel(net, [CPU] * 3)(X)
    assert same(state(net), before) and not any(b.is_inference() for b in net.buffers())


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_backward_pass_that_fails_names_its_rank_and_leaves_the_gradients_as_they_were(failing):
    net = known(Picky().double())
    parallel, X = DataParallel(net, [CPU] * 3), rand(9, 6)
    weighted(parallel(X)).backward()
    X[3 * failing + 1, 2] = 99
    loss = weighted(parallel(X))
    before = state(net)
    with pytest.raises(FloatingPointError, match="99 in the batch") as error:
        loss.backward()
    assert error.value.__notes__ == [f"raised on rank {failing} of 3 devices"]
    assert same(state(net), before)


# What is refused


class Keeping(nn.Module):
    """Keeps something on itself in the forward pass, before its last layer."""

    def __init__(self, keep):
        super().__init__()
        self.layer, self.last, self.keep = nn.Linear(6, 5).double(), nn.Linear(5, 2).double(), keep
        self.register_buffer("seen", torch.zeros(5, dtype=torch.float64))
        known(self)
        self.aux, self.terms, self.named, self.nested = 0.0, [], {}, {"a": [0, [1]]}

    def forward(self, x):
        h = self.layer(x).tanh()
        self.keep(self, h)
        return self.last(h)


KEPT = {
    "a tensor": (lambda m, h: setattr(m, "aux", h.square().sum()), "aux"),
    "a penalty": (lambda m, h: setattr(m, "aux", m.layer.weight.square().sum()), "aux"),
    "a name that was not there": (lambda m, h: setattr(m, "late", h), "late"),
    "in a new list": (lambda m, h: setattr(m, "aux", [1, (h.sum(),)]), "aux"),
    "in a list of the module": (lambda m, h: m.terms.append(m.layer.weight.square().sum()), "terms"),
    "in a dict of the module": (lambda m, h: m.named.update(aux=m.layer.weight.square().sum()), "named"),
    "deep in a dict": (lambda m, h: m.nested["a"][1].append(h.sum()), "nested"),
    "in a submodule": (lambda m, h: setattr(m.layer, "aux", h.sum()), "layer.aux"),
    "a parameter in a list": (lambda m, h: m.terms.append(m.layer.weight), "terms"),
    "a buffer set anew": (lambda m, h: setattr(m, "seen", m.seen + h.sum(0)), "seen"),
    "a buffer in place": (lambda m, h: m.seen.add_(h.sum(0)), "seen"),
}


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("again", [False, True], ids=["at first", "after a call of the plain module"])
@pytest.mark.parametrize("what", KEPT)
def test_what_needs_a_gradient_and_is_kept_on_the_module_is_refused_by_name(what, again, k):
    keep, name = KEPT[what]
    net, X = Keeping(keep), rand(6, 6)
    if again:
        net(X)
        net.seen = net.seen.detach()
    before = state(net)
    with pytest.raises(ValueError, match=rf"keeps in self\.{name} what .* lost .*detach\(\)") as error:
        DataParallel(net, [CPU] * k)(X)
    assert error.value.__notes__[0].startswith("raised on rank ")
    assert same(state(net), before)


def test_a_list_that_holds_itself_is_no_reason_to_hang():
    net = Apply(lambda m, x: x * m.w, w=rand(6))
    net.own = [1, {}]
    net.own[1]["again"] = net.own
    assert torch.equal(DataParallel(net, [CPU] * 2)(rand(4, 6)), net(rand(4, 6)))


def test_places_count_in_the_list_of_devices_and_the_default_is_one_virtual_device():
    assert DataParallel(mlp(), [0, 1, 4]).device_ids == [CPU] * 3
    assert DataParallel(mlp(), ["cpu", torch.device("cpu", 0)]).device_ids == [CPU] * 2
    assert DataParallel(mlp()).device_ids == [CPU]


def test_a_buffer_elsewhere_is_refused_by_name_when_it_is_called():
    net = nn.Sequential(nn.BatchNorm1d(6, affine=False))
    parallel = DataParallel(net, [CPU] * 2)
    net[0].running_mean = net[0].running_mean.to("meta")
    with pytest.raises(ValueError, match=r"must be on cpu.*has 0\.running_mean on meta$"):
        parallel(rand(4, 6, dtype=torch.float32))


# What a GPU changes


@pytest.mark.gpu
@pytest.mark.timeout(120, method="thread")
@pytest.mark.parametrize("k", [2, 3])
def test_virtual_devices_on_one_gpu_do_not_wait_for_each_other_in_the_backward_pass(k):
    gpu = torch.device("cuda", 0)
    net, plain, X = convnet().to(gpu).eval(), convnet().to(gpu).eval(), rand(7, 1, 6, 6).to(gpu)
    parallel, factors = DataParallel(net, [gpu] * k), rand(7, 3, seed=50).to(gpu)
    for _ in range(20):
        outs = [call(X) for call in (parallel, plain)]
        for out in outs:
            (out * factors).sum().backward()
    assert_close(outs[0].detach(), outs[1].detach())
    assert_close(gradients(net), gradients(plain))


@pytest.mark.gpu
def test_inputs_on_the_cpu_are_brought_to_the_gpus_and_their_gradients_back():
    places = try_devices(3)
    net, X = mlp().to(places[0]), rand(7, 6).requires_grad_()
    out = DataParallel(net, places)(X)
    assert out.device == places[0]
    (out * rand(7, 3, seed=50).to(places[0])).sum().backward()
    plain, leaf = mlp(), rand(7, 6).requires_grad_()
    weighted(plain(leaf)).backward()
    assert_close([X.grad, *[p.grad.cpu() for p in net.parameters()]], [leaf.grad, *gradients(plain)])


@pytest.mark.gpu(2)
def test_a_training_on_two_gpus_takes_the_steps_of_one_worker_and_both_work():
    class Seen(nn.Module):
        def forward(self, x):
            seen.append(x.device)
            return x

    places, seen = try_devices(2), []
    alone, net = mlp(), nn.Sequential(Seen(), mlp()).to(places[0])
    parallel = DataParallel(net, places)
    sgd, alone_sgd = (torch.optim.SGD(module.parameters(), 0.3, momentum=0.9) for module in (net, alone))
    for step in range(4):
        X, factors, before = rand(7, 6, seed=step), rand(7, 3, seed=50 + step), [p.detach().clone() for p in alone.parameters()]
        for call, optimizer in ((parallel, sgd), (alone, alone_sgd)):
            optimizer.zero_grad()
            out = call(X)
            (out * factors.to(out.device)).sum().backward()
            optimizer.step()
        assert not any(torch.equal(p, q) for p, q in zip(alone.parameters(), before))
        assert_close([p.detach().cpu() for p in net.parameters()], [p.detach() for p in alone.parameters()])
    assert sorted(map(str, seen)) == sorted(map(str, places * 4))
