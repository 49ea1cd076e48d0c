"""What ours and torch.nn.DataParallel have in common, use by use, and every difference, seen on both sides.

The oracle is PyTorch's own code on CPU "devices" (helpers/torch_on_cpu.py). The second half is the table of differences
in chapter 4: whoever changes one changes the other.
"""

import tempfile
import threading
import time
from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from d2lpar.data_parallel import DataParallel
from helpers.modules import Apply, Picky, convnet, known, mlp, rand
from helpers.plain_modules import assert_close, fresh, gradients, same, state, weighted
from helpers.torch_on_cpu import theirs, torch_on_cpu

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_core", "oracle")


@pytest.fixture
def oracle():
    with torch_on_cpu():
        yield


def ours(module, k, output_device=CPU, dim=0):
    return DataParallel(module, [CPU] * k, output_device, dim)


both = pytest.mark.parametrize("wrap", [ours, theirs], ids=["ours", "torch"])


def outcome(wrap, make, k, inputs, kwargs, dim):
    """All that a call and its backward pass leave behind; a parameter that is not used is told apart below."""
    net = make()
    attributes = [set(vars(m)) for m in net.modules()]
    args, kw = fresh((inputs, kwargs))
    out = wrap(net, k, dim=dim)(*args, **kw)
    leaves = [x for x in pytree.tree_leaves((args, kw)) if isinstance(x, torch.Tensor)]
    if any(x is not None and x.requires_grad for x in pytree.tree_leaves(out)):
        weighted(pytree.tree_map(lambda x: rand(1) if x is None else x, out)).backward()
    assert [set(vars(m)) for m in net.modules()] == attributes
    assert not any(b.grad_fn for b in net.buffers())
    return {"outputs": pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, out),
            "gradients": gradients(net), "of buffers": [b.grad for b in net.buffers()],
            "of inputs": [x.grad for x in leaves], "inputs": [x.detach() for x in leaves],
            "parameters": [p.detach() for p in net.parameters()], "buffers": [b.detach() for b in net.buffers()],
            "modes": torch.tensor([m.training for m in net.modules()])}


def check_as_torch(make, *inputs, k=3, dim=0, bound=1e-12, **kwargs):
    """Ours and torch's do the same with the modules that `make` makes; what they do."""
    own, other = [outcome(wrap, make, k, inputs, kwargs, dim) for wrap in (ours, theirs)]
    assert_close(own, other, bound)
    assert type(own["outputs"]) is type(other["outputs"])
    return own


def check_error(error, words, call):
    """What `call` raises, of this very type."""
    with pytest.raises(error, match=words) as caught:
        call()
    assert caught.type is error
    return caught.value


# The same


class Doing(nn.Module):
    """Runs `do` in its forward pass, between two layers."""

    def __init__(self, do=lambda m, h: h):
        super().__init__()
        self.first, self.last, self.do = nn.Linear(6, 5).double(), nn.Linear(5, 2).double(), do
        self.register_buffer("seen", torch.zeros(2, dtype=torch.float64))
        known(self)
        self.counter = 0

    def forward(self, x):
        return self.last(self.do(self, self.first(x).tanh()))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = known(nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64))

    def forward(self, x):
        return self.attend(x, x, x, need_weights=False)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make, shape", [(mlp, (7, 6)), (convnet, (8, 1, 6, 6))])
def test_outputs_gradients_and_buffers(k, training, make, shape):
    check_as_torch(lambda: make().train(training), rand(*shape).requires_grad_(), k=k)


def test_outputs_that_are_none():
    check_as_torch(lambda: Doing(), rand(7, 6))
    out = check_as_torch(lambda: Apply(lambda m, x: {"a": (x * m.w, None)}, w=rand(6)), rand(7, 6))["outputs"]
    assert out["a"][1] is None
    assert check_as_torch(Attention, rand(6, 3, 4).requires_grad_())["outputs"][1] is None


@both
@pytest.mark.parametrize("kind", ["object", "bound method"])
def test_a_hook_is_shared_and_called_by_every_replica(wrap, kind):
    class Recorder:
        def __init__(self):
            self.rows, self.gradients = [], 0

        def __call__(self, module, args, out):
            self.rows.append(len(out))

        record = __call__

        def back(self, module, *grads):
            self.gradients += 1

    recorder, net = Recorder(), mlp()
    net[0].register_forward_hook(recorder if kind == "object" else recorder.record)
    net[0].register_full_backward_hook(recorder.back)
    wrap(net, 3)(rand(6, 6).requires_grad_()).sum().backward()
    assert recorder.rows == [2, 2, 2] and recorder.gradients == 3


@both
def test_a_retained_graph_and_a_second_backward(wrap):
    net, X = mlp(), rand(7, 6).requires_grad_()
    loss = weighted(wrap(net, 3)(X))
    loss.backward(retain_graph=True)
    once = [x.clone() for x in (X.grad, *gradients(net))]
    loss.backward()
    assert_close([X.grad, *gradients(net)], [2 * x for x in once])
    check_error(RuntimeError, "second time", loss.backward)


@both
def test_one_of_two_outputs_after_the_other(wrap):
    net, X = Apply(lambda m, x: (x * m.a, x * m.b), a=rand(6), b=rand(6)), rand(7, 6)
    first, second = wrap(net, 3)(X)
    first.sum().backward(retain_graph=True)
    second.sum().backward()
    assert_close(gradients(net), [X.sum(0), X.sum(0)])


def test_a_lock_an_open_file_and_a_generator_are_shared():
    locks, things = [], []

    def make():
        net = Doing(lambda m, h: things.append((m.lock, m.file, m.numbers)) or h)
        net.lock, net.file, net.numbers = threading.Lock(), tempfile.TemporaryFile(), iter(range(3))
        locks.append(net)
        return net

    check_as_torch(make, rand(6, 6))
    for net, seen in zip(locks, (things[:3], things[3:])):
        assert all(a is net.lock and b is net.file and c is net.numbers for a, b, c in seen)
        net.file.close()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_of_both_kinds(reentrant):
    def fn(m, h):
        return checkpoint(lambda h: h.tanh() * m.last.weight.sum(), h, use_reentrant=reentrant)

    check_as_torch(lambda: Doing(fn), rand(7, 6).requires_grad_())


@both
def test_output_device_and_dim(wrap):
    net, X = Apply(lambda m, x: x * m.w, w=rand(2, 1)), rand(2, 7).requires_grad_()
    out = wrap(net, 3, dim=1)(X)
    assert out.shape == (2, 7) and torch.equal(out, net(X))
    assert wrap(net, 2, output_device=torch.device("meta"), dim=1)(X).device.type == "meta"
    check_as_torch(lambda: Apply(lambda m, x, t: (x * m.w, x * t), w=rand(2, 1)), X, rand(1, 7), dim=1)


@both
def test_a_module_is_looked_for_on_the_first_device_when_it_is_called(wrap):
    net = mlp().to("meta")
    parallel = wrap(net, 2)
    error = ValueError if wrap is ours else RuntimeError
    check_error(error, "must (be|have its parameters and buffers) on", lambda: parallel(rand(4, 6)))
    net.to_empty(device="cpu")
    assert parallel(rand(4, 6)).shape == (4, 3)


@both
def test_one_device_alone_is_where_the_constructor_moves_the_module(wrap, monkeypatch):
    moved, net = [], mlp()
    monkeypatch.setattr(net, "to", moved.append)
    wrap(net, 2)
    assert moved == []
    wrap(net, 1)
    assert [place.type for place in moved] == ["cpu"]


def test_six_examples_on_four_devices_are_three_shards_of_two():
    lengths = []
    net = lambda: known(nn.Sequential(Apply(lambda m, x: lengths.append(len(x)) or x), nn.BatchNorm1d(6)).double())
    check_as_torch(net, rand(6, 6).requires_grad_(), k=4)
    assert lengths == [2] * 6


def test_what_a_replica_does_to_itself_is_lost():
    def fn(m, h):
        m.counter += 1
        m.seen = m.seen + h.detach().sum()  # another tensor, not another value
        m.last.extra = h
        return h

    nets = []
    result = check_as_torch(lambda: nets.append(Doing(fn)) or nets[-1], rand(7, 6))
    assert [net.counter for net in nets] == [0, 0]
    assert same(result["buffers"], list(Doing().buffers()))


@both
def test_a_loss_term_kept_on_the_module_is_not_there_after_the_call(wrap):
    def fn(m, h):
        m.kl = h.square().sum()
        return h

    net = Doing(fn)
    wrap(net, 2)(rand(4, 6))
    check_error(AttributeError, "kl", lambda: net.kl)


@both
def test_a_reassigned_buffer_is_lost_also_when_the_call_fails(wrap):
    def fn(m, h):
        m.seen = m.seen + 1
        if h.shape[0] == 1:
            raise KeyError("failed")
        return h

    net = Doing(fn)
    before, place = state(net), net.seen
    check_error(KeyError, "failed", lambda: wrap(net, 2)(rand(3, 6)))
    assert same(state(net), before) and net.seen is place


def test_a_buffer_changed_in_place_is_replica_0s():
    def fn(m, h):
        m.seen += h.detach()[:, :2].sum(0)
        m.seen.mul_(2)
        return h

    result = check_as_torch(lambda: Doing(fn), rand(7, 6))
    assert not same(result["buffers"], list(Doing().buffers()))


def test_a_buffer_that_wants_a_gradient_gets_it():
    def make():
        net = Doing(lambda m, h: h * m.seen.sum())
        net.seen.requires_grad_()
        return net

    assert check_as_torch(make, rand(7, 6))["of buffers"][0].norm() > 0


def frozen():
    net = mlp()
    net[0].requires_grad_(False)
    return net


def tied():
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)).double()
    net[2].weight = net[0].weight
    return known(net)


def one_layer_twice():
    layer = nn.Linear(6, 6).double()
    return known(nn.Sequential(layer, nn.Tanh(), layer))


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 3, 2, batch_first=True, bidirectional=True, dtype=torch.float64)

    def forward(self, x):
        out, (h, c) = self.lstm(x[:, None])
        return out[:, -1], h.transpose(0, 1), c.transpose(0, 1)


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6).double() for _ in range(2)])
        self.named = nn.ModuleDict({"a": nn.Linear(6, 3).double(), "b": self.layers[0]})
        self.scales = nn.ParameterList([rand(6), rand(6)])
        self.by_name = nn.ParameterDict({"shift": rand(3)})
        self.nothing = None
        self.register_parameter("no", None)
        self.register_buffer("none", None)

    def forward(self, x):
        for layer, scale in zip(self.layers, self.scales):
            x = layer(x) * scale
        return self.named["a"](self.named["b"](x)) + self.by_name["shift"]


NORMS = {"old weight_norm": nn.utils.weight_norm, "weight_norm": nn.utils.parametrizations.weight_norm,
         "old spectral_norm": nn.utils.spectral_norm, "spectral_norm": nn.utils.parametrizations.spectral_norm}


@pytest.mark.parametrize("make", [frozen, tied, one_layer_twice, Last, Lists])
def test_modules_of_many_kinds(make):
    def seeded():
        torch.manual_seed(1)
        return known(make())

    check_as_torch(seeded, rand(7, 6).requires_grad_())


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", NORMS)
def test_weights_that_are_computed_from_others(kind, training):
    def make():
        torch.manual_seed(1)
        return nn.Sequential(NORMS[kind](nn.Linear(6, 5).double()), nn.Tanh()).train(training)

    before = list(make().buffers())
    after = check_as_torch(make, rand(7, 6).requires_grad_())["buffers"]
    assert same(before, after) != (training and "spectral" in kind)


def test_a_sparse_gradient():
    found = []
    for wrap in (ours, theirs):
        net = known(nn.Embedding(9, 3, sparse=True, dtype=torch.float64))
        weighted(wrap(net, 3)(torch.tensor([1, 2, 2, 8, 1, 1, 0]))).backward()
        assert net.weight.grad.is_sparse
        found.append(net.weight.grad.to_dense())
    assert_close(*found)


Pair = namedtuple("Pair", "X weight")


def test_inputs_nested_by_keyword_and_in_named_tuples():
    def fn(m, pair, *rest, extra, name, flag=None):
        assert type(pair) is Pair and name == "ja" and flag is None and type(extra) is OrderedDict
        return pair.X * m.w + rest[0][0][1] * extra["d"][0], pair.weight * 2, Pair(pair.X.sum(), pair.X.argmax(1))

    X = [rand(7, 6, seed=n).requires_grad_() for n in range(3)]
    out = check_as_torch(lambda: Apply(fn, w=rand(6)), Pair(X[0], rand(7)), [(3, X[1])],
                         extra=OrderedDict(d=(X[2],)), name="ja", flag=None)["outputs"]
    assert type(out[2]) is Pair and out[2].X.shape == (3,)


@pytest.mark.parametrize("kind", [dict, OrderedDict, list, tuple])
def test_outputs_in_containers(kind):
    def fn(m, x):
        pairs = [("a", x * m.w), ("b", {"c": x.argmax(1), "d": (x > 0, x.sum(1))})]
        return kind(pairs) if kind in (dict, OrderedDict) else kind([x for _, x in pairs])

    out = check_as_torch(lambda: Apply(fn, w=rand(6)), rand(7, 6).requires_grad_())["outputs"]
    assert type(out) is kind


def test_a_wrapper_as_part_of_a_larger_module():
    found = []
    for wrap in (ours, theirs):
        inner = convnet()
        net = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1).double(), wrap(inner, 3), nn.Linear(3, 2).double())
        known(net)
        X = rand(7, 1, 6, 6).requires_grad_()
        weighted(net(X)).backward()
        assert "1.module.0.weight" in net.state_dict()
        found.append((gradients(net), X.grad, list(net.buffers())))
    assert_close(*found)


@both
def test_train_and_eval(wrap):
    modes, net = [], Doing(lambda m, h: modes.append((m.training, m.last.training)) or h)
    parallel = wrap(net, 2)
    parallel.eval()(rand(4, 6))
    parallel.train()(rand(4, 6))
    net.last.eval()
    parallel(rand(4, 6))
    assert modes == [(False, False)] * 2 + [(True, True)] * 2 + [(True, False)] * 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    with mode():
        out = check_as_torch(lambda: convnet().eval(), rand(7, 1, 6, 6))["outputs"]
    assert not out.requires_grad


def test_autocast_is_on_in_every_replica():
    def run():
        with torch.autocast("cpu", torch.bfloat16):
            return check_as_torch(lambda: mlp(torch.float32), rand(7, 6, dtype=torch.float32), bound=2**-7)

    assert run()["outputs"].dtype is torch.bfloat16


def test_a_large_attribute_is_shared_and_costs_nothing():
    times = {}
    for wrap in (ours, theirs):
        seen, net = [], Doing(lambda m, h: seen.append(m.entries) or h)
        net.entries = list(range(200_000))
        parallel, X = wrap(net, 2), rand(4, 6)
        parallel(X)
        start = time.perf_counter()
        parallel(X)
        times[wrap] = time.perf_counter() - start
        assert all(entries is net.entries for entries in seen)
    assert max(times.values()) < 0.2  # going through it once for a copy took as long, a call takes a few milliseconds


@both
@pytest.mark.parametrize("answers", [
    lambda x: 3, lambda x: (x, 2.0), lambda x: x if x[0, 0] == 0 else None, lambda x: x[:, :int(x[0, 0]) + 1],
    lambda x: (x, x)[:int(x[0, 0]) + 1], lambda x: {str(x[0, 0]): x}, lambda x: object()])
def test_outputs_that_cannot_be_joined_are_refused(wrap, answers):
    X = torch.tensor([[0.0, 1], [0, 2], [1, 3], [1, 4]])
    with pytest.raises(ValueError if wrap is ours else Exception):
        wrap(Apply(lambda m, x: answers(x)), 2)(X)
