"""Tests of d2lpar.data_parallel: any module on k devices is the plain module, both ways; a fault changes nothing.

First a few numbers to follow by hand, then the pieces, then any module. Where each replica sees only its shard
(BatchNorm in training), the oracle is a plain loop over copies of the module.
"""

import copy
import gc
import pickle
import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

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
    with pytest.raises(ValueError, match=rf"requires grad in self\.{name}\..* lose .*detach\(\)") as error:
        DataParallel(net, [CPU] * k)(X)
    assert error.value.__notes__[0].startswith("raised on rank ")
    assert same(state(net), before)


def test_a_list_that_holds_itself_is_no_reason_to_hang():
    net = Apply(lambda m, x: x * m.w, w=rand(6))
    net.own = [1, {}]
    net.own[1]["again"] = net.own
    assert torch.equal(DataParallel(net, [CPU] * 2)(rand(4, 6)), net(rand(4, 6)))


# What a forward pass changes: kept, or refused by name


def counted(net, buffer=3):
    """The module, with a buffer of zeros."""
    net.register_buffer("seen", torch.zeros(buffer, dtype=torch.float64))
    return net


def after_a_call(net, wrap, *inputs):
    """All that a call and its backward pass leave behind."""
    out = wrap(net)(*inputs)
    weighted(out).backward()
    return out.detach(), *state(net)


ks = pytest.mark.parametrize("k", [1, 2, 3])
PUT = {
    "a loss into an empty list": ([], lambda c, h: c.append(h.square().sum())),
    "a number into a list of numbers": ([0], lambda c, h: c.append(len(h))),
    "one number for another": ([0], lambda c, h: c.__setitem__(0, c[0] + len(h))),
    "None": ([], lambda c, h: c.append(None)),
    "NaN": ([], lambda c, h: c.append(float("nan"))),
    "a new key": ({}, lambda c, h: c.update(h=h.detach())),
    "a new value": ({"h": 1.0}, lambda c, h: c.update(h=h.detach())),
    "what was there already": ({"a": 1.0, "b": 2.0}, lambda c, h: c.update(b=c["a"])),
    "one for another that is taken out": ([1.0, 2.0], lambda c, h: (c.clear(), c.append(h.detach()))),
    "to the left of a deque": (deque([1.0]), lambda c, h: c.appendleft(h.detach())),
    "a new list in a dict": (defaultdict(list), lambda c, h: c["terms"].append(h.sum())),
    "deep inside": ({"a": [[]]}, lambda c, h: c["a"][0].append(h.sum())),
}


@ks
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("what", PUT)
def test_what_the_forward_pass_puts_into_an_argument_is_refused_by_its_name(what, mode, k):
    container, put = PUT[what]

    def fn(m, x, terms):
        h = x * m.w
        m.seen.add_(1)
        put(terms, h)
        return h

    net, given = counted(Apply(fn, w=rand(6))), copy.deepcopy(container)
    before = state(net)
    for args, kwargs, name in [((given,), {}, "1"), ((), {"terms": given}, "'terms'")]:
        with mode(), pytest.raises(ValueError, match=f"into argument {name}, which would be lost.*Return it") as error:
            DataParallel(net, [CPU] * k)(rand(6, 6), *args, **kwargs)
        assert error.value.__notes__ == [f"raised on rank 0 of {k} devices"]
    assert given == container and same(state(net), before)


@ks
@pytest.mark.parametrize("user", [0, 1, 2])
def test_what_one_replica_alone_puts_into_an_argument_is_refused(user, k):
    net = Apply(lambda m, x, terms: terms.extend([x.sum()] * (x == user).any()) or x * m.w, w=rand(1))
    with pytest.raises(ValueError, match="argument 1") as error:
        DataParallel(net, [CPU] * k)(torch.arange(3.0, dtype=torch.float64)[:, None], [])
    assert error.value.__notes__ == [f"raised on rank {user if k == 3 else user // 2 if k == 2 else 0} of {k} devices"]


@ks
def test_what_the_forward_pass_takes_out_of_an_argument_sorts_or_returns_is_no_loss(k):
    def fn(m, batch, numbers):
        numbers.sort()
        batch["out"] = batch.pop("X") * m.w
        return batch

    net, X, numbers = Apply(fn, w=rand(6)), rand(7, 6).requires_grad_(), [3, 1, 2]
    batch = {"X": X}
    out = DataParallel(net, [CPU] * k)(batch, numbers)
    assert list(out) == ["out"] and batch == {"X": X} and numbers == [3, 1, 2]  # the caller's stay, as with torch
    weighted(out).backward()
    assert_close([X.grad, net.w.grad], [rand(7, 6, seed=50) * net.w.detach(), (rand(7, 6, seed=50) * X.detach()).sum(0)])


def renormed(m, i):
    with torch.no_grad():
        m.weight.data = torch.renorm(m.weight.data, 2, 0, 0.2)
    return m.weight[i]


ALIKE = {  # what all replicas do in the same way
    "other data": renormed,
    "clamped": lambda m, i: m.weight.data.clamp_(-0.1, 0.1)[:0].sum() + m.weight[i],
    "NaN": lambda m, i: m.weight.data[7:].fill_(torch.nan)[:0].sum() + m.weight[i],
    "a row more": lambda m, i: setattr(m.weight, "data", torch.cat([m.weight.data, m.weight.data[:1]])) or m.weight[i],
}


@ks
@pytest.mark.parametrize("what", ALIKE)
def test_a_parameter_that_all_replicas_change_alike_is_kept_as_by_the_plain_module(what, k):
    found = []
    for wrap in (lambda net: net, lambda net: DataParallel(net, [CPU] * k)):
        net, place = Apply(ALIKE[what], weight=rand(8, 3)), []
        for _ in range(3):
            net.zero_grad()
            place.append(after_a_call(net, wrap, torch.arange(6)))
            with torch.no_grad():
                net.weight -= 0.1 * net.weight.grad
        found.append(pytree.tree_map(torch.nan_to_num, place))
    assert_close(found[1], found[0])


UNLIKE = {  # what depends on the shard
    "max_norm": lambda m, i: nn.functional.embedding(i, m.weight, max_norm=0.3),
    "other data": lambda m, i: setattr(m.weight, "data", m.weight.data + i.sum()) or m.weight[i],
    "data in place": lambda m, i: m.weight.data.add_(i.sum())[:0].sum() + m.weight[i],
    "NaN on the first rank": lambda m, i: m.weight.data.mul_(torch.nan if 0 in i else 1)[:0].sum() + m.weight[i],
    "on the last rank": lambda m, i: m.weight.data.mul_(2 if 5 in i else 1)[:0].sum() + m.weight[i],
    "another size": lambda m, i: setattr(m.weight, "data", m.weight.data[:6 + (0 in i)]) or m.weight[i],
}


@ks
@pytest.mark.parametrize("what", UNLIKE)
def test_a_parameter_that_the_replicas_change_in_different_ways_is_refused_and_stays_as_it_was(what, k):
    net, before = counted(Apply(UNLIKE[what], weight=rand(8, 3))), rand(8, 3)
    net.register_forward_pre_hook(lambda m, args: m.seen.add_(1).sum() > 0 and None)
    parallel = DataParallel(net, [CPU] * k)
    if k == 1:
        plain = Apply(UNLIKE[what], weight=rand(8, 3))
        assert_close(parallel(torch.arange(6)).nan_to_num(), plain(torch.arange(6)).nan_to_num())
        assert_close(net.weight.detach().nan_to_num(), plain.weight.detach().nan_to_num())
        return
    with pytest.raises(ValueError, match="changes the parameter weight differently on each rank"):
        parallel(torch.arange(6))
    assert torch.equal(net.weight, before) and not net.seen.any()


@ks
def test_a_norm_that_no_row_exceeds_is_no_change(k):
    check_equals_plain(known(nn.Embedding(8, 3, max_norm=100.0, dtype=torch.float64)), k, torch.arange(6))


SEEN = {
    "resize_": lambda m, new: m.seen.resize_(5).fill_(1),
    "data": lambda m, new: setattr(m.seen, "data", 0.9 * m.seen + 0.1 * new),
    "data of another type": lambda m, new: setattr(m.seen, "data", torch.ones(2, dtype=torch.long)),
    "set_": lambda m, new: m.seen.set_(new.clone()),
    "unsqueeze_": lambda m, new: m.seen.unsqueeze_(0).add_(1),
    "t_": lambda m, new: m.seen.resize_(3, 2).fill_(2).t_(),
    "NaN": lambda m, new: setattr(m.seen, "data", new * torch.nan),
    "swapped": lambda m, new: torch.utils.swap_tensors(m.seen, new.clone()),
    "in place": lambda m, new: m.seen.copy_(new),
}


@ks
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("what", SEEN)
def test_whatever_the_forward_pass_does_to_a_buffer_is_kept_from_replica_0(what, mode, k):
    nets = [counted(Apply(lambda m, x: SEEN[what](m, x.detach()[0, :3]) is ... or x * m.w, w=rand(6))) for _ in range(2)]
    for _ in range(2):  # the first example is replica 0's
        with mode():
            nets[0](rand(6, 6))
            DataParallel(nets[1], [CPU] * k)(rand(6, 6))
    assert_close(nets[1].seen.nan_to_num(), nets[0].seen.nan_to_num())
    assert nets[1].seen.stride() == nets[0].seen.stride()


@ks
@pytest.mark.parametrize("what", [*SEEN, "a parameter", "a parameter's data"])
def test_a_call_that_fails_leaves_parameters_and_buffers_as_they_were(what, k):
    def fn(m, x):
        if what in SEEN:
            SEEN[what](m, x.detach()[0, :3])
        elif what == "a parameter":
            m.w.data.mul_(torch.nan)
        else:
            m.w.data = m.w.data[:2] * 2
        raise FloatingPointError

    net = counted(Apply(fn, w=rand(6)))
    before = state(net)
    with pytest.raises(FloatingPointError):
        DataParallel(net, [CPU] * k)(rand(6, 6))
    assert same(state(net), before)


# Outputs that cannot be joined


def once(x):
    """Whether the first example is here."""
    return x[0, 0] == rand(6, 6)[0, 0]


@dataclass
class Scores:
    scores: torch.Tensor


class Named(OrderedDict):
    pass


REFUSED_OUTPUTS = {  # output, and what the error says of it; those of all k, and those of several ranks
    "a number": (lambda h, x: {"h": h, "n": 3}, r"output 1 .*'n': 'int'", 1),
    "NaN": (lambda h, x: {"h": h, "n": float("nan")}, r"output 1 .*'n': 'float'", 1),
    "a text": (lambda h, x: [h, "ok"], "output 1 .*'str'", 1),
    "a truth value": (lambda h, x: (h, True), "output 1 .*'bool'", 1),
    "an array": (lambda h, x: (h, h.detach().numpy()), "output 1 .*'ndarray'", 1),
    "a dataclass": (lambda h, x: Scores(h), "output 0 .*'Scores'", 1),
    "a dict of a class": (lambda h, x: Named(h=h), "output 0 .*'Named'", 1),
    "a distribution": (lambda h, x: torch.distributions.Normal(h, 1.0), "output 0 .*'Normal'", 1),
    "a packed sequence": (lambda h, x: nn.utils.rnn.pack_sequence(list(h)), "output 0 .*'PackedSequence'", 2),
    "another key": (lambda h, x: {"a" if once(x) else "b": h}, r"\{'a': \(.*\{'b': \(", 2),
    "more keys": (lambda h, x: {"a": h} if once(x) else {"a": h, "b": h}, r"\{'a': \(.*'b': \(", 2),
    "a shorter list": (lambda h, x: [h, h] if once(x) else [h], r"\[\[\(", 2),
    "a tuple or a tensor": (lambda h, x: h if once(x) else (h,), r"\(\(", 2),
    "None here": (lambda h, x: (h, h if once(x) else None), "output 1 is None on some ranks only.*NoneType", 2),
    "None there": (lambda h, x: (h, None if once(x) else h), "output 1 is None on some ranks only.*NoneType", 2),
    "another size": (lambda h, x: (h, h[:, :4] if once(x) else h[:, :3]), r"output 1 .*, 4\).*, 3\)", 2),
    "another number of dimensions": (lambda h, x: h if once(x) else h[0], "output 0 .*, 6", 2),
    "one number here, a vector there": (lambda h, x: h.sum() if once(x) else h.sum(1), r"output 0 .*\(\), \(", 2),
}


@ks
@pytest.mark.parametrize("what", REFUSED_OUTPUTS)
def test_outputs_that_cannot_be_joined_are_refused_in_one_line_and_nothing_is_changed(what, k):
    output, words, least = REFUSED_OUTPUTS[what]
    net = counted(Apply(lambda m, x: (m.seen.add_(1), output(x * m.w, x))[1], w=rand(6)))
    before = state(net)
    if k < least:
        DataParallel(net, [CPU] * k)(rand(6, 6))
        return
    with pytest.raises(ValueError, match=f"{words}.*Return tensors, in the same") as error:
        DataParallel(net, [CPU] * k)(rand(6, 6))
    assert "\n" not in str(error.value) and same(state(net), before)


@ks
def test_outputs_without_the_dimension_are_refused_and_single_numbers_are_not(k):
    X = rand(6, 6)
    with pytest.raises(ValueError, match=r"output 1 cannot be joined, dim=1: .*\(6,\)"):
        DataParallel(Apply(lambda m, x: (x * m.w, (x * m.w).sum(1)), w=rand(6, 1)), [CPU] * k, dim=1)(X)
    for dim in (-1, 1):
        out = DataParallel(Apply(lambda m, x: (x * m.w).sum(), w=rand(6, 1)), [CPU] * k, dim=dim)(X)
        assert_close(out.sum(), (X * rand(6, 1)).sum())


@ks
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_empty_tensor_of_no_shape_is_left_out_and_nested_tensors_are_joined(k):
    net = Apply(lambda m, x: torch.empty(0) if k > 1 and once(x) else x * m.w, w=rand(6))
    with torch.no_grad():
        out = DataParallel(net, [CPU] * k)(rand(6, 6))
        assert torch.equal(out, (rand(6, 6) * net.w)[6 // k if k > 1 else 0:])
        nested = DataParallel(Apply(lambda m, x: torch.nested.nested_tensor(list(x))), [CPU] * k)(rand(6, 6))
        assert torch.equal(torch.stack(nested.unbind()), rand(6, 6))


@ks
def test_dicts_whose_keys_come_in_another_order_on_a_rank_get_their_own_gradients(k):
    def fn(m, x):
        pairs = [("a", x * m.a), ("b", x * m.b)]
        return dict(pairs if once(x) else pairs[::-1])

    nets = [Apply(fn, a=rand(6), b=rand(6, seed=1)) for _ in range(2)]
    for net, wrap in zip(nets, (lambda net: net, lambda net: DataParallel(net, [CPU] * k))):
        out = wrap(net)(rand(6, 6))
        (out["a"].sum() + 10 * out["b"].sum()).backward()
    assert_close(*map(gradients, nets[::-1]))


# Arguments that cannot be cut


ROWS = {
    "texts": list("abcdef"), "texts in a tuple": tuple("abcdef"), "numbers": [5, 5, 4, 3, 2, 1], "NaN": [float("nan")] * 6,
    "truth values": [True] * 6, "numbers of NumPy": list(np.arange(6)), "bytes": [b"a"] * 6,
    "an array": np.ones((6, 2)), "a vector": np.ones(6), "in a dict": {"a": [{"texts": list("abcdef")}]},
}


@ks
@pytest.mark.parametrize("what", ROWS)
def test_rows_that_are_not_tensors_are_refused_by_name_where_they_would_go_whole_to_several_devices(what, k):
    net, before = Apply(lambda m, x, rows: x * m.w, w=rand(6)), rand(6)
    if k == 1:
        check_equals_plain(net, k, rand(6, 6), rows=ROWS[what])
        return
    with pytest.raises(ValueError, match=r"argument 'rows' is as long as the batch, 6,.*Pass a tensor") as error:
        DataParallel(net, [CPU] * k)(rand(6, 6), rows=ROWS[what])
    assert "\n" not in str(error.value) and torch.equal(net.w, before)


@ks
@pytest.mark.parametrize("rest", [(6, 6), ("ja", "nein"), [1] * 5, np.ones((5, 6)), np.array(6), "abcdef", [None] * 6, torch.Size([6] * 6)],
                         ids=repr)
def test_what_is_not_as_long_as_the_batch_or_may_be_a_shape_goes_to_all(rest, k):
    check_equals_plain(Apply(lambda m, x, rest: x * m.w, w=rand(6)), k, rand(6, 6), rest)


@ks
@pytest.mark.parametrize("dim, shape", [(1, (6,)), (2, (6, 6)), (-3, (6, 6)), (-2, (6,))])
def test_a_tensor_without_the_dimension_is_refused_by_name(dim, shape, k):
    net = Apply(lambda m, x, n: x * m.w, w=rand(1))
    with pytest.raises(ValueError, match=rf"argument 1 has no dimension {dim} to cut along: its shape is .*unsqueeze"):
        DataParallel(net, [CPU] * k, dim=dim)(rand(6, 6, 6), rand(*shape))


@ks
def test_a_mask_of_another_length_is_refused_with_a_way_out(k):
    net = Apply(lambda m, x, mask: x * m.w, w=rand(6))
    with pytest.raises(ValueError, match=r"got lengths \[5, 6\].*mask or table.*buffer, or expand it"):
        DataParallel(net, [CPU] * k)(rand(6, 6), rand(5, 5))


# What does not reach the threads of the replicas


class Quiet(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def dual_input(call):
    with forward_ad.dual_level():
        return call(forward_ad.make_dual(rand(6, 6), rand(6, 6)))


def dual_in(place):
    """A call of a module that uses a dual tensor, which lies in a buffer, an attribute, or a closure."""
    def use(call):
        net = call.module if isinstance(call, DataParallel) else call
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(rand(6), rand(6))
            if place == "buffer":
                net.register_buffer("dual", dual)
            else:
                net.dual = dual
            net.fn = (lambda m, x: x * dual) if place == "closure" else (lambda m, x: x * m.dual)
            return forward_ad.unpack_dual(call(rand(6, 6))).tangent

    return use


def in_mode(mode):
    def use(call):
        with mode:
            return call(rand(6, 6))

    return use


TRANSFORMS = {
    "a dual input": dual_input, **{f"a dual {place}": dual_in(place) for place in ("buffer", "attribute", "closure")},
    "jvp": lambda call: torch.func.jvp(call, (rand(6, 6),), (rand(6, 6),)),
    "grad": lambda call: torch.func.grad(lambda x: call(x).sum())(rand(6, 6)),
    "vmap": lambda call: torch.func.vmap(call)(rand(2, 6, 6)), "jacfwd": lambda call: torch.func.jacfwd(call)(rand(6, 6)),
    "FLOPs": in_mode(FlopCounterMode(display=False)), "a dispatch mode": in_mode(Quiet()),
    "a trace": lambda call: torch.jit.trace(call, rand(6, 6), check_trace=False),
}


@ks
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("what", TRANSFORMS)
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_transforms_that_do_not_reach_the_replicas_are_refused(what, mode, k):
    net = counted(Apply(lambda m, x: m.seen.add_(1)[:0].sum() + x * m.w, w=rand(6)))
    with mode(), pytest.raises(RuntimeError, match="do not reach the threads of the replicas. Use them with the module"):
        TRANSFORMS[what](DataParallel(net, [CPU] * k))
    assert not net.seen.any()


@ks
def test_a_dual_level_without_a_tangent_is_no_reason_to_refuse(k):
    with forward_ad.dual_level():
        check_equals_plain(mlp(), k, rand(6, 6))


@ks
def test_the_callers_default_device_is_known_in_the_threads(k):
    seen = []
    net = Apply(lambda m, x: seen.append(torch.arange(3).device.type) or x * m.w, w=rand(6))
    X = rand(6, 6)
    for device in ("meta", "cpu"):
        with torch.device(device):
            DataParallel(net, [CPU] * k)(X)
    assert seen == ["meta"] * k + ["cpu"] * k


@ks
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("statistics", [True, False])
def test_pytorchs_syncbatchnorm_is_refused_where_it_would_see_a_shard_alone(statistics, training, k):
    net = nn.Sequential(nn.SyncBatchNorm(6, track_running_stats=statistics).double()).train(training)
    if k == 1 or (statistics and not training):
        check_equals_plain(net, k, rand(6, 6))
        return
    with pytest.raises(ValueError, match="0 is PyTorch's SyncBatchNorm.*d2lpar.SyncBatchNorm sees the whole"):
        DataParallel(net, [CPU] * k)(rand(6, 6))
    replicate(net, CPU)  # alone, it may be


@ks
def test_a_method_that_is_bound_to_the_module_and_a_table_keyed_by_a_parameter_get_words_that_fit(k):
    class Chosen(nn.Linear):
        def __init__(self):
            super().__init__(6, 2)
            self.operation = super().forward

        def forward(self, x):
            return self.operation(x)

    with pytest.raises(ValueError, match="parameter weight of the module itself, of shape .*method stored.*name"):
        DataParallel(Chosen(), [CPU] * k)(rand(6, 6, dtype=torch.float32))
    for key, notes in (("w", 1), ("parameter", 2)):
        net = Apply(lambda m, x, key=key: x * m.table[m.w if key == "parameter" else key], w=rand(6))
        net.table = {net.w: 2.0}
        with pytest.raises(KeyError) as error:
            DataParallel(net, [CPU] * k)(rand(6, 6))
        assert len(error.value.__notes__) == notes and (notes == 1 or "use their names as keys" in error.value.__notes__[1])


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
