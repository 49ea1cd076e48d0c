"""What ours and torch.nn.DataParallel have in common, use by use, and every difference, seen on both sides.

The oracle is PyTorch's own code on CPU "devices" (helpers/torch_on_cpu.py). The second half is the table of differences
in notebooks/appendix/ours_and_pytorch.ipynb: change both together.
"""

import copy
import itertools
import sys
import threading
from collections import OrderedDict, UserDict, namedtuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import prune
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from d2lpar.data_parallel import DataParallel
from d2lpar.models import resnet18
from helpers.modules import Apply, Picky, convnet, known, mlp, rand
from helpers.plain_modules import assert_close, fresh, gradients, same, state, weighted
from helpers.torch_on_cpu import theirs, torch_on_cpu

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_core", "oracle")


@pytest.fixture
def oracle(request):
    if "gpu" in request.keywords:  # there it is torch itself
        yield
    else:
        with torch_on_cpu():
            yield


def ours(module, k, output_device=CPU, dim=0):
    return DataParallel(module, [CPU] * k, output_device, dim)


def alone(module, k, dim=0):
    return module


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
Pair = namedtuple("Pair", "X weight")


def attributed():
    """A buffer that wants a gradient."""
    net = Doing(lambda m, h: h * m.seen.sum())
    net.seen.requires_grad_()
    return net


def seeded(make):
    def made():
        torch.manual_seed(1)
        return known(make())

    return made


def normed(kind, training):
    return lambda: torch.manual_seed(1) and nn.Sequential(NORMS[kind](nn.Linear(6, 5).double()), nn.Tanh()).train(training)


def recurrent():
    net = Last()
    nn.utils.weight_norm(net.lstm, "weight_hh_l0")
    return net


def pruned():
    net = mlp()
    for amount in (0.3, 0.2):
        prune.l1_unstructured(net[0], "weight", amount)
    return net


def parameter_and_buffer():
    net = Apply(lambda m, x: x * m.w + m.again, w=rand(6))
    net.register_buffer("again", net.w)
    return net


def checkpointed(reentrant):
    return lambda: Doing(lambda m, h: checkpoint(lambda h: h.tanh() * m.last.weight.sum(), h, use_reentrant=reentrant))


def forces(m, x):
    """The slope of an energy."""
    energy = (x.requires_grad_() * m.w).tanh()
    return torch.autograd.grad(energy.sum(), x, create_graph=True)[0], energy


def nested(m, pair, *rest, extra, name, flag=None):
    assert type(pair) is Pair and name == "ja" and flag is None and type(extra) is OrderedDict
    return pair.X * m.w + rest[0][0][1] * extra["d"][0], pair.weight * 2, Pair(pair.X * 1, pair.X.argmax(1))


def contained(kind):
    def fn(m, x):
        pairs = [("a", x * m.w), ("b", {"c": x.argmax(1), "d": (x > 0, x.sum(1))})]
        return kind(pairs) if kind in (dict, OrderedDict) else kind([x for _, x in pairs])

    return fn


def several(m, x):
    return x[:, :0] * m.w[:0], x[:, :3], x, m.w[None].expand(len(x), 6)


def of(fn, **params):
    return lambda: Apply(fn, **(params or {"w": rand(6)}))


X, LEAF = rand(7, 6), rand(7, 6).requires_grad_()
IMAGES = rand(8, 1, 6, 6).requires_grad_()
BOTH, TORCH = ("plain", "torch"), ("torch",)  # where each shard is seen by itself, the plain module is no oracle
SAME = {  # name: make, inputs, keywords, oracles
    "an mlp": (mlp, [LEAF], {}, BOTH),
    "an mlp in evaluation": (lambda: mlp().eval(), [LEAF], {}, BOTH),
    "BatchNorm in training": (convnet, [IMAGES], {}, TORCH),
    "BatchNorm in evaluation": (lambda: convnet().eval(), [IMAGES], {}, BOTH),
    "the chapter's ResNet": (lambda: known(resnet18(10, width=4).double()).eval(), [rand(7, 1, 16, 16)], {}, BOTH),
    "attention, whose weights are None": (Attention, [rand(6, 3, 4).requires_grad_()], {}, BOTH),
    "None within a dict": (of(lambda m, x: {"a": (x * m.w, None)}), [X], {}, BOTH),
    "an empty batch": (mlp, [rand(0, 6)], {}, BOTH),
    "a number for each replica": (of(lambda m, x: (x * m.w).mean()), [LEAF], {}, TORCH),
    "a sparse gradient": (lambda: known(nn.Embedding(9, 3, sparse=True, dtype=torch.float64)), [torch.tensor([1, 2, 2, 8, 1, 1, 0])], {}, BOTH),
    "an output outside the loss": (of(lambda m, x: (x * m.a, (x * m.b).detach()), a=rand(6), b=rand(6)), [X], {}, ("plain",)),
    "nothing at all": (of(lambda m, x: ()), [X], {}, TORCH),
    "several types and sizes": (of(several), [LEAF], {}, TORCH),
    "as many as are above zero": (of(lambda m, x: (x * m.w)[x[:, 0] > 0]), [LEAF], {}, BOTH),
    **{f"{kind.__name__} of outputs": (of(contained(kind)), [LEAF], {}, BOTH) for kind in (dict, OrderedDict, list, tuple)},
    "nested inputs, by keyword, in a named tuple": (of(nested), [Pair(LEAF, rand(7)), [(3, rand(7, 6, seed=1).requires_grad_())]],
                                                    {"extra": OrderedDict(d=(rand(7, 6, seed=2).requires_grad_(),)), "name": "ja", "flag": None}, BOTH),
    "inputs of which some want a gradient": (of(lambda m, a, b, c, d: a * m.w + 2 * b + 3 * c + 4 * d), [X, LEAF, X, LEAF], {}, BOTH),
    "an input that is not used": (of(lambda m, a, b: a * m.w), [LEAF, X], {}, BOTH),
    "an input that is returned": (of(lambda m, x: (x, x * m.w)), [LEAF], {}, BOTH),
    **{f"an input changed in place, {kind}": (of(fn), [x], {}, TORCH)  # the caller's is not
       for x in (X, LEAF) for kind, fn in ((f"{x.requires_grad} 1", lambda m, x: x.add_(1).mul_(m.w) * 2),
                                           (f"{x.requires_grad} 2", lambda m, x: nn.functional.relu_(x) * m.w))},
    **{f"forces, {x.requires_grad}": (of(forces), [x], {}, TORCH) for x in (X, LEAF)},
    **{f"a checkpoint, reentrant {r}": (checkpointed(r), [LEAF], {}, BOTH) for r in (True, False)},
    **{make.__name__: (seeded(make), [LEAF], {}, BOTH) for make in (frozen, tied, one_layer_twice, Last, Lists)},
    **{f"{kind}, training {t}": (normed(kind, t), [LEAF], {}, TORCH if t else BOTH) for kind in NORMS for t in (True, False)},
    "weight_norm of a recurrent layer": (lambda: torch.manual_seed(1) and recurrent(), [LEAF], {}, BOTH),
    "pruned twice": (pruned, [LEAF], {}, TORCH),
    "a parameter that is a buffer too": (parameter_and_buffer, [X], {}, TORCH),
    "a buffer that wants a gradient": (attributed, [X], {}, BOTH),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated", "ignore:.*all input tensors were scalars")
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("what, against", [(what, against) for what, row in SAME.items() for against in row[-1]])
def test_the_same(what, against, k):
    make, inputs, kwargs, _ = SAME[what]
    own, other = [outcome(wrap, make, k, inputs, kwargs, 0) for wrap in (ours, theirs if against == "torch" else alone)]
    assert_close(own, other)
    assert type(own["outputs"]) is type(other["outputs"])


def test_six_examples_on_four_devices_are_three_shards_of_two():
    lengths = []
    check_as_torch(lambda: Apply(lambda m, x: lengths.append(len(x)) or x * m.w, w=rand(6)), rand(6, 6), k=4)
    assert lengths == [2] * 6


@both
def test_a_hook_is_shared_and_called_by_every_replica(wrap):
    rows, back, net = [], [], mlp()
    net[0].register_forward_hook(lambda m, args, out: rows.append(len(out)))
    net[0].register_full_backward_hook(lambda *args: back.append(1))
    wrap(net, 3)(rand(6, 6).requires_grad_()).sum().backward()
    assert rows == [2, 2, 2] and len(back) == 3


@both
def test_one_of_two_outputs_after_the_other(wrap):
    net, X = Apply(lambda m, x: (x * m.a, x * m.b), a=rand(6), b=rand(6)), rand(7, 6)
    first, second = wrap(net, 3)(X)
    first.sum().backward(retain_graph=True)
    second.sum().backward()
    assert_close(gradients(net), [X.sum(0), X.sum(0)])
    check_error(RuntimeError, "second time", lambda: second.sum().backward())


def test_a_lock_an_open_file_and_a_generator_are_shared():
    locks, things = [], []

    def make():
        net = Doing(lambda m, h: things.append((m.lock, m.file, m.numbers)) or h)
        net.lock, net.file, net.numbers = threading.Lock(), sys.__stdout__, iter(range(3))
        locks.append(net)
        return net

    check_as_torch(make, rand(6, 6))
    for net, seen in zip(locks, (things[:3], things[3:])):
        assert all(a is net.lock and b is net.file and c is net.numbers for a, b, c in seen)


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


def test_what_a_replica_does_to_itself_is_lost():
    def fn(m, h):
        m.counter += 1
        m.seen = m.seen + h.detach().sum()  # another tensor, not another value
        m.last.extra = h.detach()
        return h

    nets = []
    result = check_as_torch(lambda: nets.append(Doing(fn)) or nets[-1], rand(7, 6))
    assert [net.counter for net in nets] == [0, 0]
    assert same(result["buffers"], list(Doing().buffers()))


def test_a_buffer_changed_in_place_is_replica_0s():
    def fn(m, h):
        m.seen += h.detach()[:, :2].sum(0)
        m.seen.mul_(2)
        return h

    result = check_as_torch(lambda: Doing(fn), rand(7, 6))
    assert not same(result["buffers"], list(Doing().buffers()))


RESIZED = {
    "resize_": lambda m: m.seen.resize_(3).fill_(1), "data": lambda m: setattr(m.seen, "data", m.seen + 1),
    "set_": lambda m: m.seen.set_(torch.ones(3, dtype=torch.float64)), "unsqueeze_": lambda m: m.seen.unsqueeze_(1),
}


@pytest.mark.parametrize("what", RESIZED)
def test_a_buffer_of_another_size_or_memory_is_replica_0s(what):
    result = check_as_torch(lambda: Doing(lambda m, h: RESIZED[what](m) is ... or h), rand(7, 6))
    assert not same(result["buffers"], list(Doing().buffers()))


def test_dicts_are_joined_by_key_in_whatever_order_the_keys_come():
    def fn(m, x):
        pairs = [("a", x * m.a), ("b", x * m.b)]
        return dict(pairs if x[0, 0] == rand(6, 6)[0, 0] else pairs[::-1])

    results = []
    for wrap in (ours, theirs):
        net = Apply(fn, a=rand(6), b=rand(6, seed=1))
        out = wrap(net, 3)(rand(6, 6))
        (out["a"].sum() + 10 * out["b"].sum()).backward()
        results.append([out["a"].detach(), out["b"].detach(), *gradients(net)])
    assert_close(*results)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    modes = []
    with mode():
        out = check_as_torch(lambda: convnet().eval(), rand(7, 1, 6, 6))["outputs"]
        check_as_torch(lambda: Doing(lambda m, h: modes.append(h.requires_grad) or h), rand(7, 6))
    assert not out.requires_grad and modes == [False] * 6


@both
def test_a_large_attribute_is_shared_and_nobody_goes_through_it(wrap):
    seen, net = [], Doing(lambda m, h: seen.append(m.entries) or h)
    net.entries = list(range(200_000))
    parallel, X, calls = wrap(net, 2), rand(4, 6), itertools.count()
    parallel(X)
    sys.setprofile(lambda *_: next(calls))
    try:
        parallel(X)
    finally:
        sys.setprofile(None)
    assert len(seen) == 4 and all(entries is net.entries for entries in seen)
    assert 100 < next(calls) < 20_000  # of functions


@both
def test_one_module_in_two_wrappers_twice_in_a_chain_and_from_another_thread(wrap):
    nets, X = [known(nn.Linear(6, 6).double()) for _ in range(2)], rand(7, 6)
    two, three = wrap(nets[0], 2), wrap(nets[0], 3)
    assert list(two.state_dict()) == ["module.weight", "module.bias"]
    loss = weighted(two(three(X))) + weighted(three(X))
    (weighted(nets[1](nets[1](X))) + weighted(nets[1](X))).backward()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert_close(*map(gradients, nets))


@both
def test_hooks_on_a_parameter_and_retained_gradients(wrap):
    net, seen = mlp(), []
    net[0].weight.register_hook(lambda grad: 2 * grad)
    net[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    h = rand(7, 6).requires_grad_() * 1
    h.retain_grad()
    out = wrap(net, 3)(h)
    out.retain_grad()
    weighted(out).backward()
    assert same(seen, [net[0].weight.grad]) and h.grad.norm() > 0
    assert torch.equal(out.grad, rand(7, 3, seed=50))


def test_a_dict_on_the_module_is_one_for_all_replicas_and_they_overwrite_each_other():
    answers = []
    for wrap in (ours, theirs):
        all_here = threading.Barrier(3)

        def fn(m, x):
            m.features["x"] = x
            all_here.wait(20)
            return m.features["x"]

        net = Apply(fn)
        net.features = {}
        answers.append(wrap(net, 3)(torch.arange(3.0)).unique().numel())
    assert answers == [1, 1]  # whose, depends on the threads


# Different, each seen on both sides


def test_on_one_device_torch_calls_the_module_itself_and_ours_a_replica():
    def fn(m, x):
        m.counter = m.counter + 1
        return x * m.w

    for wrap, counter in ((ours, 0), (theirs, 1)):
        net = Apply(fn, w=rand(6))
        net.counter = 0
        wrap(net, 1)(rand(4, 6))
        assert net.counter == counter


def unregistered(kind):
    """A module that uses a layer which it has not registered, the layer, and how ours names it."""
    layer = known(nn.Linear(6, 6).double())
    net = Apply(lambda m, x: m.layers[0](x) * m.w, w=rand(6))
    if kind == "list":
        net.layers = [layer]
        return net, layer, "a trainable tensor in layers"
    if kind == "captured":
        net.fn = lambda m, x: layer(x) * m.w
        return net, layer, "a trainable tensor"
    net.layers = nn.ModuleList([layer])
    net.fn = lambda m, x: net.layers[0](x) * m.w
    return net, layer, "the parameter layers.0.(weight|bias) of the module itself"


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("kind", ["list", "captured", "original"])
def test_a_trainable_tensor_outside_the_replica_is_refused_by_name_and_torchs_gpus_miss_it(kind, k):
    net, layer, words = unregistered(kind)
    before = state(net)
    check_error(ValueError, words + ", of shape", lambda: ours(net, k)(rand(6, 6)))
    assert same(state(net), before)
    weighted(theirs(net, k)(rand(6, 6))).backward()  # on several GPUs: it is not on the replica's device
    assert layer.weight.grad.norm() > 0


@pytest.mark.parametrize("inputs", [(), (3,), ([], "ja")])
def test_a_call_without_a_tensor_to_cut_is_one_call_and_torchs_is_one_for_each_device(inputs):
    net = Apply(lambda m, *inputs: m.w * 1, w=rand(6))
    assert ours(net, 3)(*inputs).shape == (6,)
    assert theirs(net, 3)(*inputs).shape == (18 if inputs else 6,)


def test_an_input_of_one_number_goes_to_all_and_torch_cannot_cut_it():
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    net = Apply(lambda m, x, scale: x * scale * m.w, w=rand(6))
    weighted(ours(net, 3)(rand(6, 6), scale)).backward()
    assert_close(scale.grad, (rand(6, 6) * rand(6) * rand(6, 6, seed=50)).sum())
    check_error(RuntimeError, "chunk expects at least a 1-dim", lambda: theirs(net, 3)(rand(6, 6), scale))


def test_a_forward_pass_that_thaws_one_parameter_and_freezes_another_mixes_nothing_up():
    def fn(m, x):
        net.a.requires_grad_()
        net.b.requires_grad_(False)
        return x * m.a * m.b * m.c

    for wrap in (ours, theirs):
        net = Apply(fn, a=rand(6), b=rand(6, seed=1), c=rand(6, seed=2))
        net.a.requires_grad_(False)
        weighted(wrap(net, 3)(rand(6, 6))).backward()
        assert net.a.grad is None
        assert_close(net.c.grad, (rand(6, 6) * rand(6, 6, seed=50) * net.a * net.b).sum(0).detach())


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_call_that_fails_restores_the_buffers_and_names_the_rank_and_torchs_does_not(failing):
    X = rand(9, 6)
    X[3 * failing] = torch.nan
    for wrap in (ours, theirs):
        net = known(Picky().double())
        before = state(net)
        error = check_error(FloatingPointError, "NaN in the batch", lambda: wrap(net, 3)(X))
        assert same(state(net), before) == (wrap is ours)
        if wrap is ours:
            assert str(error) == "NaN in the batch" and error.__notes__ == [f"raised on rank {failing} of 3 devices"]
        else:  # replicas 0 to 2 have all run; the first error is raised, its traceback in the message
            assert f"in replica {failing}" in str(error) and "Traceback" in str(error)


class Coded(Exception):
    def __init__(self, code, detail):
        super().__init__(code, detail)
        self.code = code


def test_an_error_is_the_one_that_was_raised_and_torchs_is_rebuilt_from_its_message():
    def fn(m, x):
        raise Coded(7, "detail")

    net = Apply(fn, w=rand(6))
    assert check_error(Coded, "detail", lambda: ours(net, 2)(rand(4, 6))).code == 7
    check_error(RuntimeError, "Coded", lambda: theirs(net, 2)(rand(4, 6)))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_interrupt_in_a_replica_is_one_and_torchs_is_a_missing_result():
    def fn(m, x):
        raise KeyboardInterrupt

    net = Apply(fn, w=rand(6))
    check_error(KeyboardInterrupt, None, lambda: ours(net, 2)(rand(4, 6)))
    check_error(KeyError, "0", lambda: theirs(net, 2)(rand(4, 6)))


def test_a_replica_has_parameters_and_torchs_has_none():
    net = Apply(lambda m, x: x * next(m.parameters()), w=rand(6))
    assert torch.equal(ours(net, 3)(rand(6, 6)), rand(6, 6) * net.w)
    check_error(StopIteration, None, lambda: theirs(net, 3)(rand(6, 6)))
    decay = Apply(lambda m, x: x.mean() * m.w.mean() + sum(p.square().sum() for p in m.parameters()), w=rand(6))
    plain = torch.stack([decay(x) for x in rand(6, 6).chunk(3)])
    assert_close(ours(decay, 3)(rand(6, 6)).detach(), plain.detach())
    lost = theirs(decay, 3)(rand(6, 6))  # the sum over no parameters, in silence
    assert_close((plain - lost).detach(), decay.w.square().sum().expand(3).detach())


def test_a_parameter_that_no_replica_uses_has_no_gradient_and_torchs_zeros():
    for wrap in (ours, theirs):
        net = Apply(lambda m, x: x * m.used, used=rand(6), unused=rand(6))
        weighted(wrap(net, 3)(rand(6, 6))).backward()
        assert net.unused.grad is None if wrap is ours else torch.equal(net.unused.grad, torch.zeros_like(net.unused))


@pytest.mark.parametrize("kind", ["torch.compile", "compile", "forward"])
def test_a_forward_pass_bound_to_the_module_is_refused_and_torchs_replicas_run_the_modules(kind):
    seen, net = [], Apply(lambda m, x: seen.append(m) or x * m.w, w=rand(6))
    if kind == "forward":
        net.forward = net.forward
    elif kind == "compile":
        net._compiled_call_impl = net._call_impl  # what net.compile() does, without a compiler
    else:
        net = torch.compile(net, backend="eager")
    before = len(seen)
    check_error(ValueError, "Compile the DataParallel instead", lambda: ours(net, 3)(rand(6, 6)))
    assert len(seen) == before
    if kind != "torch.compile":  # its replicas recurse until the stack is full
        theirs(net, 3)(rand(6, 6))
        assert all(m is net for m in seen) and len(seen) == 3  # on several GPUs: on the wrong device


def test_autocasts_dtype_reaches_ours_and_not_the_threads_of_torch():
    for wrap, dtype in ((ours, torch.float16), (theirs, torch.bfloat16)):
        net, seen = mlp(torch.float32), []
        net.register_forward_pre_hook(lambda m, args: seen.append(torch.get_autocast_dtype("cpu")))
        with torch.autocast("cpu", torch.float16):
            assert wrap(net, 2)(rand(4, 6, dtype=torch.float32)).dtype is dtype
        assert seen == [dtype] * 2


def test_inference_mode_reaches_ours_and_not_the_threads_of_torch():
    for wrap, mode in ((ours, True), (theirs, False)):
        net, seen = convnet(), []
        net.register_forward_pre_hook(lambda m, args: seen.append(torch.is_inference_mode_enabled()))
        with torch.inference_mode():
            if wrap is ours:
                wrap(net, 2)(rand(4, 1, 6, 6))
            else:  # BatchNorm counts in a copy made in inference mode
                check_error(RuntimeError, "Inplace update to inference tensor", lambda: wrap(net, 2)(rand(4, 1, 6, 6)))
        assert seen == [mode] * 2


@pytest.mark.parametrize("initial", [{}, {"kl": 0.0}], ids=["not there before", "there before"])
def test_a_loss_term_kept_on_the_module_is_refused_and_torchs_is_as_before_the_call(initial):
    def fn(m, h):
        m.kl = h.square().sum()
        return h

    for wrap in (ours, theirs):
        net = Doing(fn)
        vars(net).update(initial)
        if wrap is ours:
            check_error(ValueError, r"requires grad in self\.kl", lambda: wrap(net, 2)(rand(4, 6)))
        else:
            wrap(net, 2)(rand(4, 6))
        assert getattr(net, "kl", None) == initial.get("kl")  # a term of 0.0 is no error, and its gradient is gone


@pytest.mark.parametrize("where", ["list of the module", "elsewhere"])
def test_a_loss_term_put_where_all_replicas_see_it_is_refused_and_torchs_has_its_gradient(where):
    def fn(m, h):
        (m.terms if where == "list of the module" else elsewhere).append(m.last.weight.square().sum())
        return h

    for wrap in (ours, theirs):
        net, elsewhere = Doing(fn), []
        net.terms = []
        if wrap is ours and where == "list of the module":
            check_error(ValueError, r"requires grad in self\.terms", lambda: wrap(net, 3)(rand(6, 6)))
            continue
        wrap(net, 3)(rand(6, 6))
        loss = sum(elsewhere + net.terms)
        if wrap is ours:
            check_error(RuntimeError, "did not return", loss.backward)
        else:
            loss.backward()
            assert_close(net.last.weight.grad, 6 * net.last.weight.detach())  # of three terms


def test_inputs_with_the_time_first_are_cut_in_time_unless_dim_says_where_the_examples_are():
    for wrap in (ours, theirs):
        nets = [known(nn.LSTM(6, 3, dtype=torch.float64)) for _ in range(3)]
        X = rand(4, 6, 6)  # 4 times, 6 examples
        outs = [nets[0](X)[0], wrap(Apply(lambda m, x: m.inner(x)[0]), 2, dim=1), wrap(Apply(lambda m, x: m.inner(x)[0]), 2)]
        for i in (1, 2):
            outs[i].module.inner = nets[i]
            outs[i] = outs[i](X)
        assert_close(outs[1], outs[0])
        assert (outs[2] - outs[0]).norm() > 0.01


def test_single_numbers_are_a_vector_along_any_dimension_and_torch_joins_them_along_the_first_only():
    net = Apply(lambda m, x: (x * m.w).sum(), w=rand(6))
    assert ours(net, 2, dim=1)(rand(3, 12)).shape == theirs(net, 2)(rand(2, 6)).shape == (2,)
    check_error(IndexError, "no dimensions", lambda: theirs(net, 2, dim=1)(rand(3, 12)))


def makes_a_leaf(m, x):
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad((leaf * m.w).tanh().sum(), leaf, create_graph=True)[0]


def goes_back(m, h):
    h.square().sum().backward()
    return h.detach()


def scales_a_buffer(m, h):
    m.seen.mul_(h.mean())
    return h * m.seen.sum()


class Batch(dict):
    pass


def paired(m, a, b):
    return (a * m.w).sum(1) * b.sum()


def by_name(m, batch):
    return batch["X"] * m.w


def slope(wrap, net):
    """A first derivative that will be differentiated again."""
    X = rand(6, 6).requires_grad_()
    return torch.autograd.grad(weighted(wrap(net, 3)(X)), X, create_graph=True)[0]


def trained(net, out):
    """Whether all parameters get a gradient from the output."""
    if out.requires_grad:
        weighted(out).backward()
    return any(p.grad is not None and p.grad.norm() > 0 for p in net.parameters())


def joined(net, outs):
    outs[1].sum().backward()
    return torch.equal(net.w.grad, torch.full_like(net.w, 3))  # of one sum


def of_shape(*shape):
    return lambda net, out: out.shape == shape


def call(*inputs):
    return lambda wrap, net: wrap(net, 3)(*[x() if callable(x) else x for x in inputs])


def filled(container):
    """A call that puts into `container`; whether torch's gets there."""
    def use(wrap, net):
        given = copy.deepcopy(container)
        wrap(net, 3)(X6, given)
        return given

    return use


def puts(m, x, c):
    c.update(n=len(x)) if isinstance(c, dict) else c.append(len(x))
    return x * m.w


def renormed(m, x):
    m.w.data = torch.renorm(m.w.data[None] * x.sum(), 2, 0, 0.1)[0]
    return x * m.w


def sync(wrap, net):
    """How far each shard's mean is from 0."""
    return max(shard.mean(0).abs().max() for shard in wrap(net, 3)(X6).chunk(3))


def counted(wrap, net):
    with FlopCounterMode(display=False) as counter:
        wrap(net, 3)(X6)
    return counter.get_total_flops()


X6 = rand(6, 6)
REFUSED = {  # name: make, what is called, the error and its words, and what torch's does
    "a leaf that the forward pass makes": (of(makes_a_leaf), call(X6), ValueError, r"an input, call its requires_grad_\(\)", trained),
    "inputs of two lengths": (of(paired), call(X6, rand(2)), ValueError, r"\[2, 6\]", of_shape(4)),  # the other examples are gone
    "inputs of six and one": (of(paired), call(X6, rand(1)), ValueError, r"\[1, 6\]", of_shape(2)),
    "a second derivative": (mlp, slope, RuntimeError, "create_graph=True", lambda net, out: trained(net, out.square())),
    "a wrapper inside": (None, call(X6), RuntimeError, "would deadlock", trained),
    "a module of torch.jit": (lambda: torch.jit.script(mlp()), call(X6), ValueError, "^the module is a torch.jit module", trained),
    "a child of torch.jit": (lambda: nn.Sequential(nn.Identity(), torch.jit.script(mlp())), call(X6), ValueError, "^1 is a torch.jit module", trained),
    "a buffer given a graph": (lambda: Doing(scales_a_buffer), call(X6), ValueError, r"requires grad in self\.seen.*detach",
                               lambda net, out: net.seen.requires_grad and not net.seen.is_leaf),
    "a parameter that is returned": (of(lambda m, x: (x * m.w, m.w)), call(X6), ValueError, "returns the parameter w ", joined),
    "an iterator": (of(lambda m, x, items: x * 0 + next(items)), call(rand(6, 1), lambda: iter([1, 2, 3])), ValueError, "share an iterator",
                    lambda net, out: out.unique().numel() == 3),  # whose is which, depends on the threads
    "backward in the forward pass": (lambda: Doing(goes_back), call(X6), ValueError, r"called backward\(\)", trained),
    "tensors in a dict of a class": (of(by_name), call(Batch(X=X6)), ValueError, "in a Batch", of_shape(6, 6)),
    "an empty list that is filled": (of(puts), filled([]), ValueError, "into argument 1", lambda net, given: given == [2, 2, 2]),
    "an empty dict that is filled": (of(puts), filled({}), ValueError, "into argument 1", lambda net, given: given == {"n": 2}),
    "a list that is longer afterwards": (of(puts), filled([0]), ValueError, "into argument 1", lambda net, given: given == [0]),
    "a parameter's data by shard": (of(renormed), call(X6), ValueError, "changes the parameter w", lambda net, out: net.w.norm() > 0.11),
    "texts as rows": (of(lambda m, x, texts: x * m.w + len(texts)), call(X6, list("abcdef")), ValueError, "as long as the batch", of_shape(6, 6)),
    "an array as rows": (of(lambda m, x, y: x * m.w + len(y)), call(X6, np.ones(6)), ValueError, "as long as the batch", of_shape(6, 6)),
    "torch's SyncBatchNorm": (lambda: nn.SyncBatchNorm(6).double(), sync, ValueError, "PyTorch's SyncBatchNorm", lambda net, far: far < 1e-6),
    "a FLOP counter": (mlp, counted, RuntimeError, "FlopCounterMode", lambda net, flops: 0 <= flops < 6 * 2 * (6 * 8 + 8 * 3)),
    "tensors in a mapping": (of(by_name), call(UserDict(X=X6)), ValueError, "in a UserDict", of_shape(18, 6)),  # whole to all
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_changes_nothing_and_what_torch_does(what):
    make, use, error, words, answers = REFUSED[what]
    nets = [(make or (lambda wrap=wrap: nn.Sequential(wrap(mlp(), 2))))() for wrap in (ours, theirs)]
    before = state(nets[0])
    check_error(error, words, lambda: use(ours, nets[0]))
    assert same(state(nets[0]), before)
    assert answers(nets[1], use(theirs, nets[1]))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch uses it for such derivatives
def test_neither_has_a_forward_mode_derivative():
    for wrap, error in ((ours, RuntimeError), (theirs, NotImplementedError)):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(X6, X6)
            check_error(error, "forward.mode", lambda wrap=wrap, dual=dual: wrap(mlp(), 3)(dual))


def test_containers_without_a_tensor_go_to_all():
    net = Apply(lambda m, batch, extra=None: batch["X"] * m.w, w=rand(6))
    for extra in (Batch(a=3), torch.Size([3])):
        assert ours(net, 3)({"X": rand(6, 6)}, extra).shape == (6, 6)


# The oracle itself


@pytest.mark.gpu(2)  # one GPU alone runs the module itself
@pytest.mark.parametrize("make, shape", [(mlp, (7, 6)), (convnet, (8, 1, 6, 6)), (Attention, (6, 3, 4)), (Lists, (7, 6))])
def test_on_gpus_torch_is_what_the_oracle_says(make, shape):
    gpus, found = torch.cuda.device_count(), []
    for wrap in (nn.DataParallel, DataParallel):
        net, X = known(make()).cuda(0), rand(*shape).cuda(0).requires_grad_()
        out = wrap(net, list(range(gpus)))(X)
        sum(x.square().sum() for x in pytree.tree_leaves(out) if x is not None).backward()
        found.append((X.grad, gradients(net), list(net.buffers())))
    assert_close(*found, 1e-10)
    net, layer, _ = unregistered("list")
    layer.cuda(0)
    check_error(RuntimeError, "device", lambda: nn.DataParallel(net.cuda(0), list(range(gpus)))(rand(8, 6).cuda(0)))
