"""Tests of d2lpar.ddp: every way to average equals one worker, on every rank after every step; and what is refused."""

import copy
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

from d2lpar import ddp
from d2lpar.batchnorm import convert_batchnorm
from d2lpar.ddp import (
    OwnDDP,
    assign_buckets,
    assign_by_kind,
    average_flat,
    average_gradients,
    average_in_hooks,
    broadcast_start,
    sendable,
)
from d2lpar.launch import RankError, RankGroup, run_ranks
from d2lpar.models import resnet18
from d2lpar.ranks import Traffic, rank_device
from d2lpar.scratch import distance, same_bits

pytestmark = [pytest.mark.usefixtures("one_core"), pytest.mark.timeout(120)]

NUM_STEPS = 4
SIZES = {1: [7], 2: [2, 7], 3: [4, 0, 3]}  # of the shards, by the number of ranks


class Odd(nn.Module):
    """A frozen layer, a weight that is used twice, a buffer, and a layer that some shards do not use."""

    def __init__(self):
        super().__init__()
        self.first, self.tied, self.frozen, self.some = (nn.Linear(6, 6) for _ in range(4))
        self.tied.weight = self.first.weight
        self.frozen.requires_grad_(False)
        self.out = nn.Linear(6, 3)
        self.register_buffer("scale", torch.rand(1))

    def forward(self, x, use=True):
        h = self.frozen(torch.tanh(self.tied(torch.tanh(self.first(x))))) * self.scale
        return self.out(h + self.some(h) if use else h)


def odd(seed):
    torch.manual_seed(seed)
    return Odd().double().to(rank_device())


def batch(step, sizes):
    generator = torch.Generator().manual_seed(step)
    X = torch.randn(sum(sizes), 6, generator=generator, dtype=torch.float64).to(rank_device())
    return X.split(sizes), X[:, :3].argmax(1).split(sizes)


def nothing(net):
    pass


def started(net):
    broadcast_start(net)
    return net


def in_hooks(net):
    average_in_hooks(started(net))
    return net


def in_buckets(net):
    return OwnDDP(net, 100, 400)


def library(net):
    return nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.001)


def parameters_in_hooks(net):
    def average(p):
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()

    for p in ddp.trained_params(started(net)):
        p.register_post_accumulate_grad_hook(average)
    return net


def clip_first(net):
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    average_gradients(net)


def clip_last(net):
    average_gradients(net)
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)


def clip(net):
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)


def averaged_but_one(net):
    left = net.out.bias.grad.clone()
    average_gradients(net)
    net.out.bias.grad.copy_(left)


def unfrozen(net):
    net.out.requires_grad_(False)
    in_hooks(net)
    net.out.requires_grad_(True)
    return net


# by name: how to wrap, what comes after backward, the same for one worker, whether some shards leave a layer out,
# and whether the loss is the mean over the shard
RIGHT = {
    "tensor by tensor": (started, average_gradients, nothing, True, False),
    "flat": (started, average_flat, nothing, True, False),
    "hooks": (in_hooks, nothing, nothing, True, False),
    "buckets": (in_buckets, nothing, nothing, True, False),
    "one bucket": (OwnDDP, nothing, nothing, True, False),
    "library": (library, nothing, nothing, False, False),
    "clipped at last": (started, clip_last, clip, False, False),
}
WRONG = {
    "no start": (lambda net: net, average_gradients, nothing, False, False),
    "not averaged": (started, nothing, nothing, False, False),
    "averaged but one": (started, averaged_but_one, nothing, False, False),
    "parameters in hooks": (parameters_in_hooks, nothing, nothing, False, False),
    "mean of means": (started, average_gradients, nothing, False, True),
    "clipped first": (started, clip_first, clip, False, False),
    "unfrozen later": (unfrozen, nothing, nothing, False, False),
}


def follow(rank, wrap, after, alone_after, leave_out, means):
    """The distances from one worker, of gradients and of parameters, after each step; the parameters; did they move."""
    k = dist.get_world_size()
    sizes = SIZES[k] if not means else [max(size, 1) for size in SIZES[k]]  # a mean over nothing is no number
    net, alone = odd(seed=rank), odd(seed=0)
    before = [p.detach().clone() for p in alone.parameters() if p.requires_grad]
    run = wrap(net)
    sgd, alone_sgd = (torch.optim.SGD(n.parameters(), 0.3, momentum=0.9) for n in (net, alone))
    far = []
    for step in range(NUM_STEPS):
        shards, labels = batch(step, sizes)
        use = [not leave_out or r == step % k for r in range(k)]
        sgd.zero_grad()
        alone_sgd.zero_grad()
        loss = F.cross_entropy(run(shards[rank], use[rank]), labels[rank], reduction="mean" if means else "sum")
        (loss if means else loss * k / sum(sizes)).backward()
        after(net)
        for X, y, used in zip(shards, labels, use):
            (F.cross_entropy(alone(X, used), y, reduction="sum") / sum(sizes)).backward()
        alone_after(alone)
        far.append(distance(*[[p.grad for p in ddp.trained_params(n)] for n in (net, alone)]))
        sgd.step()
        alone_sgd.step()
        far.append(distance(list(net.state_dict().values()), list(alone.state_dict().values())))
    moved = min((p.cpu() - q.cpu()).abs().max().item() for p, q in zip(ddp.trained_params(net), before))
    return far, [x.detach().cpu() for x in net.state_dict().values()], moved


def every_way(rank, wrong):
    ways = RIGHT | WRONG if wrong else RIGHT
    return {name: follow(rank, *way) for name, way in ways.items()} | {"single": single_cases(rank)}


def message_of(fn, *args):
    try:
        fn(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def in_two_parts(own, X):
    """What is said where a layer is used in two checkpoints that send its gradient in two parts, and after that."""
    net = own.module
    net.forward = lambda x: net.out(checkpoint(net.first, checkpoint(net.first, x, use_reentrant=True), use_reentrant=True))
    loss = own(X.requires_grad_()).sum()
    return message_of(loss.backward), message_of(own, X)


def single_cases(rank):
    """What needs a group, but no further harness."""
    k, found = dist.get_world_size(), {}
    X = torch.full((2, 6), rank + 1.0, dtype=torch.float64, device=rank_device())

    net = odd(0)
    twice, once = OwnDDP(copy.deepcopy(net), 100, 400), started(net)
    for _ in range(2):  # the second backward adds to what the first has averaged
        twice(X).sum().backward()
        once(X).sum().backward()
    average_gradients(once)
    found["accumulated"] = distance(*[[p.grad for p in ddp.trained_params(n)] for n in (twice.module, once)])

    def in_pieces(net, x):
        return net.out(checkpoint(net.first, x.requires_grad_(), use_reentrant=True))

    pieces, whole = odd(0), started(odd(0))
    pieces.forward = lambda x: in_pieces(pieces, x)
    OwnDDP(pieces, 100, 400)(X.clone()).sum().backward()
    in_pieces(whole, X.clone()).sum().backward()
    average_gradients(whole)
    found["reentrant"] = distance(*[[p.grad for p in ddp.trained_params(n)] for n in (pieces, whole)])

    found["twice"], found["after twice"] = in_two_parts(OwnDDP(odd(0), 100, 400), X.clone())

    last = nn.Conv2d(2, 3, 3).to(rank_device(), memory_format=torch.channels_last)
    with torch.no_grad():
        last.weight += rank
    for after in (average_gradients, average_flat):
        broadcast_start(last)
        last.zero_grad()
        last(torch.ones(1, 2, 3, 3, device=rank_device()) * (rank + 1)).sum().backward()
        after(last)
        found[f"channels_last {after.__name__}"] = last.weight.grad.unique().tolist() == [(k + 1) / 2]
    found["channels_last start"] = last.weight.detach().cpu()

    own = OwnDDP(odd(0))
    own.module.frozen.bias.requires_grad_(True)
    found["unfrozen"] = message_of(own, X)
    own = OwnDDP(odd(0))
    own.module.out = copy.deepcopy(own.module.out)
    found["replaced"] = message_of(own, X)
    own = OwnDDP(odd(0))
    own.module.out.requires_grad_(False)
    found["frozen"] = message_of(own, X)

    own = OwnDDP(odd(0), 100, 400)
    own.module.first.register_full_backward_hook(lambda *args: 1 / 0)
    found["backward raises"] = message_of(own(X.requires_grad_()).sum().backward)
    found["and then"] = message_of(own, X)
    dist.barrier()

    found["others"] = message_of(broadcast_start, nn.Linear(2, 2 + rank).to(rank_device()))
    found["others, hooks"] = message_of(average_in_hooks, nn.Linear(2, 2 + rank).to(rank_device()))
    found["others, one without"] = message_of(broadcast_start, nn.Linear(2, 2, device="meta" if rank else rank_device()))
    found["meta"] = message_of(OwnDDP, nn.Linear(2, 2, device="meta"))
    found["lazy"] = message_of(OwnDDP, nn.LazyLinear(2).to(rank_device()))
    found["nothing to train"] = message_of(average_in_hooks, nn.Tanh())
    table = nn.Embedding(3, 2, sparse=True).to(rank_device())
    table(torch.tensor([1], device=rank_device())).sum().backward()
    found["sparse"] = message_of(average_flat, table)
    return found


@pytest.fixture(scope="module", params=[1, 2, 3])
def ranks(request, group_of):
    return group_of(request.param).run(every_way, request.param == 2, timeout_s=100)


@pytest.mark.parametrize("way", RIGHT)
def test_every_rank_is_one_worker_after_every_step(ranks, way):
    for far, replica, moved in (rank[way] for rank in ranks):
        assert len(far) == 2 * NUM_STEPS and max(far) <= 1e-12
        assert same_bits([replica, ranks[0][way][1]])
        assert moved > 1e-4, "every parameter is trained"


@pytest.mark.parametrize("way", WRONG)
def test_each_mistake_is_seen_on_some_rank(ranks, way):
    if len(ranks) != 2:
        pytest.skip("tried on two ranks")
    assert max(max(rank[way][0]) for rank in ranks) > 1e-2
    agree = way in ("mean of means", "clipped first")
    assert same_bits([rank[way][1] for rank in ranks]) is agree


def test_a_second_backward_and_one_in_pieces_are_averaged_too(ranks):
    for rank in ranks:
        assert rank["single"]["accumulated"] <= 1e-12
        assert rank["single"]["reentrant"] <= 1e-12


def test_memory_that_is_not_in_rows_is_sent_right(ranks):
    for rank in ranks:
        assert rank["single"]["channels_last average_gradients"]
        assert rank["single"]["channels_last average_flat"]
        assert torch.equal(rank["single"]["channels_last start"], ranks[0]["single"]["channels_last start"])


@pytest.mark.parametrize("case, words", {
    "unfrozen": "RuntimeError: frozen.bias: replaced or unfrozen since the module was wrapped",
    "replaced": "RuntimeError: out.weight, out.bias: replaced or unfrozen",
    "frozen": "RuntimeError: 2 parameters were frozen or taken away",
    "backward raises": "ZeroDivisionError", "and then": "RuntimeError: a backward pass was left by an error",
    "twice": "RuntimeError: a gradient of shape (6,) came twice in one backward",
    "after twice": "RuntimeError: a backward pass was left by an error",
    "meta": "ValueError: weight is on meta", "lazy": "ValueError: weight has no shape yet",
    "nothing to train": "ValueError: the network has no parameter that requires a gradient",
    "sparse": "ValueError: the gradient of a parameter of shape (3, 2) is sparse",
}.items())
def test_what_cannot_be_averaged_is_refused_in_words(ranks, case, words):
    for rank in ranks:
        assert rank["single"][case].startswith(words)


def test_networks_that_differ_are_refused_on_all_ranks(ranks):
    if len(ranks) > 1:
        for rank in ranks:
            for case in ("others", "others, hooks"):
                assert rank["single"][case].startswith("ValueError: the networks of rank 0 and rank 1 differ in [('bias'")


def test_a_rank_without_a_network_to_train_is_named_by_all(ranks):
    first, *others = [rank["single"]["others, one without"] for rank in ranks]
    assert all(said.startswith("ValueError: weight is on meta") for said in others)
    if others:
        assert first.startswith("ValueError: rank 1 has no network to train: weight is on meta")


# While backward runs


class Back(torch.autograd.Function):
    """Calls a function when the gradient comes by."""

    @staticmethod
    def forward(ctx, x, fn):
        ctx.fn = fn
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.fn()
        return grad, None


def gone_on(rank, folder):
    """Collectives begun when half of backward is done, which the other rank waits for before it begins its own.

    So rank 1 comes late, and rank 0 has to compute the second half while its first gradient is on its way.
    """
    found = {}
    for name, wrap in {"hooks": in_hooks, "buckets": in_buckets, "library": library}.items():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(600, 600), nn.Linear(600, 600)).to(rank_device())  # above the library's first cap
        half, late = [], []
        passed = folder / name

        def middle():
            half.append(traffic.counts.total())
            if rank == 0 and len(half) == 3:
                passed.touch()

        def begin():
            end = time.monotonic() + 30
            while rank == 1 and len(half) == 2 and not passed.exists() and not late:
                time.sleep(0.001)
                if time.monotonic() > end:
                    late.append("rank 0 is held up")

        first, last = net
        net.forward = lambda x: Back.apply(last(Back.apply(first(x), middle)), begin)
        run = wrap(net)
        for _ in range(3):  # the library fills its buckets anew after the first
            with Traffic() as traffic:
                run(torch.ones(2, 600, device=rank_device())).sum().backward()
        found[name] = half[-1], traffic.counts.total(), late
    return found


@pytest.mark.parametrize("way", ["hooks", "buckets", "library"])
def test_gradients_are_on_their_way_while_backward_goes_on(overlap, way):
    for half, whole, late in (rank[way] for rank in overlap):
        assert 0 < half < whole
        assert not late


@pytest.fixture(scope="module")
def overlap(tmp_path_factory, group_of):
    return group_of(2).run(gone_on, tmp_path_factory.mktemp("overlap"), timeout_s=110)


# What ends a group


def raising(rank):
    net = OwnDDP(odd(0))
    X = torch.ones(2, 6 if rank == 0 else 5, dtype=torch.float64, device=rank_device())
    net(X).sum().backward()


@pytest.mark.slow
def test_a_rank_that_raises_in_forward_ends_the_group():
    with pytest.raises(RankError, match="rank 1 raised(.|\n)*shapes cannot be multiplied"):
        run_ranks(raising, 2, timeout_s=60)


@pytest.mark.parametrize("fn", [broadcast_start, average_gradients, average_flat, average_in_hooks, OwnDDP])
def test_outside_a_group_they_say_so(fn):
    with pytest.raises(ValueError, match="there is no group of processes"):
        fn(nn.Linear(1, 1))


# The library's


def three_steps(rank, average, wrap=lambda net: net):
    """The parameters after three steps on random images, from one start."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)).double().to(rank_device())
    X, y = (x.tensor_split(dist.get_world_size())[rank].to(rank_device())
            for x in (torch.rand(12, 784).double(), torch.randint(10, (12,))))
    model, sgd = wrap(net), torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        sgd.zero_grad()
        F.cross_entropy(model(X), y).backward()
        average(net, step)
        sgd.step()
    return [p.detach().cpu() for p in net.parameters()]


def multiply_first(net, step):
    for p in net.parameters():
        p.grad *= 1 / dist.get_world_size()
        dist.all_reduce(p.grad)


def multiply_and_join(net, step):
    """One bucket: in the order of definition at first, later in that in which the gradients came."""
    params = list(net.parameters())[::1 if step == 0 else -1]
    flat = torch.cat([p.grad.flatten() for p in params]) * (1 / dist.get_world_size())
    dist.all_reduce(flat)
    for p, grad in zip(params, flat.split([p.numel() for p in params])):
        p.grad.copy_(grad.view_as(p))


@pytest.mark.parametrize("k, average, same", [
    (2, lambda net, step: average_gradients(net), True), (3, lambda net, step: average_gradients(net), False),
    (3, multiply_first, False), (3, multiply_and_join, True)])
def test_whoever_divides_and_joins_as_the_library_has_its_bits(k, average, same, group_of):
    library = group_of(k).run(three_steps, nothing_more, DistributedDataParallel)
    by_hand = group_of(k).run(three_steps, average)
    assert same_bits(library) and same_bits(by_hand)
    assert same_bits([library[0], by_hand[0]]) is same
    assert distance(library[0], by_hand[0]) < 1e-12


def nothing_more(net, step):
    pass


def summed_tokens(rank, counts):
    """The gradients of accumulated micro-batches of so many tokens; and those of the mean over all of them."""
    torch.manual_seed(0)
    net = nn.Linear(3, 1).double().to(rank_device())
    X = [[torch.rand(n, 3).double().to(rank_device()) for n in own] for own in counts]
    net(torch.cat([x for own in X for x in own])).square().mean().backward()
    right = [p.grad for p in net.parameters()]
    net.zero_grad()
    model, total = DistributedDataParallel(net), sum(map(sum, counts))
    with model.no_sync():
        for x in X[rank][:-1]:
            (model(x).square().sum() * len(counts) / total).backward()
    (model(X[rank][-1]).square().sum() * len(counts) / total).backward()
    return distance([p.grad for p in net.parameters()], right)


@pytest.mark.parametrize("counts", [[[4, 4], [4, 4]], [[9, 1], [2]], [[3, 0], [4, 2]], [[4], [0]], [[1], [2], [3, 4]]], ids=str)
def test_a_token_weighs_the_same_on_every_rank_and_in_every_micro_batch(counts, group_of):
    assert max(group_of(len(counts)).run(summed_tokens, counts)) < 1e-12


def in_bfloat16(sent, bucket):
    short = bucket.buffer().to(torch.bfloat16) / dist.get_world_size()
    return dist.all_reduce(short, async_op=True).get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))


def hooked(hook):
    def wrap(net):
        model = DistributedDataParallel(net.float())
        model.register_comm_hook(None, hook)
        return lambda X: model(X.float())

    return wrap


def test_a_hook_that_sends_bfloat16_has_the_bits_of_pytorchs_own(group_of):
    full, own, library = (group_of(2).run(three_steps, nothing_more, hooked(hook)) for hook in (
        default_hooks.allreduce_hook, in_bfloat16, default_hooks.bf16_compress_hook))
    assert same_bits(own + library) and not same_bits([own[0], full[0]])


def buffers_sent(rank, settings):
    """Whether a third step sends buffers, how one began that was the rank before, and what was warned of."""
    net = nn.BatchNorm1d(1).to(rank_device())
    net.running_mean.fill_(rank)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = DistributedDataParallel(net, **settings)
    began = net.running_mean.item()
    for _ in range(3):  # the second one sends how the buckets are filled anew, by a broadcast as well
        with Traffic() as traffic:
            model(torch.ones(4, 1, device=rank_device())).sum().backward()
    return traffic.counts["broadcast"] > 0, began, [w.category for w in warned]


def averaged(rank, take_rank_0s_buffers):
    """An exponential moving average of a network with BatchNorm after four steps of DDP: its parameters and buffers."""
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(rank_device()))
    ema = AveragedModel(net.module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X in torch.randn(4, dist.get_world_size(), 8, 4):
        optimizer.zero_grad()
        net(X[rank].to(rank_device()))[0].square().sum().backward()  # the sum over all 8 would be constant
        optimizer.step()
        ema.update_parameters(net.module)
    if take_rank_0s_buffers:
        for buffer in ema.module.buffers():  # `n_averaged` stays on the CPU, and is equal anyway
            dist.broadcast(buffer, 0)
    return [x.detach().cpu() for x in ema.parameters()], [x.cpu() for x in ema.buffers()]


@pytest.mark.parametrize("cured", [False, True])
def test_an_average_of_the_parameters_is_the_same_on_all_ranks_but_its_buffers_are_each_ranks_own(cured, group_of):
    parameters, buffers = zip(*group_of(2).run(averaged, cured))
    assert same_bits(parameters)
    assert same_bits(buffers) == cured


@pytest.mark.parametrize("settings, sends, began, warned", [
    ({}, True, 0, []), ({"forward_sync_buffers": False}, False, 0, []), ({"broadcast_buffers": False}, False, 1, [FutureWarning])], ids=str)
def test_the_switch_for_buffers_leaves_the_start_alone_and_its_old_name_does_not(settings, sends, began, warned, group_of):
    assert group_of(2).run(buffers_sent, settings)[1] == (sends, began, warned)


def forward_passes_that_send(rank, passes):
    model, found = DistributedDataParallel(nn.BatchNorm1d(1).to(rank_device())), []
    around = {"train": nullcontext, "no_grad": torch.no_grad, "no_sync": model.no_sync}
    for each in passes:
        with around[each](), Traffic() as traffic:
            out = model(torch.ones(4, 1, device=rank_device()))
            found.append(traffic.counts["broadcast"] > 0)
            if each != "no_grad":
                out.sum().backward()
    return found


def test_a_forward_pass_sends_buffers_if_the_one_before_recorded_gradients_outside_no_sync(group_of):
    passes = "train train no_grad no_grad train train no_sync no_sync train train".split()
    assert group_of(2).run(forward_passes_that_send, passes) == [[True, *(each == "train" for each in passes[:-1])]] * 2


def train_unevenly(rank, what=None):
    """Rank 0 has a minibatch more than rank 1, inside Join; the parameters then, and after one more step of both."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 1), convert_batchnorm(nn.BatchNorm1d(1)) if what == "BatchNorm" else nn.Tanh())
    net = DistributedDataParallel(net)
    sgd, found = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
    X = torch.rand(8, 1).tensor_split(2)[rank]

    def step():
        sgd.zero_grad()
        net(X).square().sum().backward()
        sgd.step()

    with Join([net]):
        for _ in range(3 - rank):
            if what in (torch.float, torch.long):
                dist.all_reduce(torch.tensor(len(X), dtype=what))  # the examples of all ranks
            step()
    for _ in range(2):
        found.append([p.detach().clone() for p in net.parameters()])
        step()
    return found


@pytest.mark.slow
def test_after_join_the_replicas_agree_and_the_momentum_takes_them_apart():
    with RankGroup(2, "gloo") as group:
        joined, later = zip(*group.run(train_unevenly))
    assert same_bits(joined) and not same_bits(later)


@pytest.mark.slow
@pytest.mark.parametrize("what, error, where", [
    (torch.float, TimeoutError, "all_reduce"), (torch.long, RankError, "SIGABRT(.|\n)*collective mismatch"),
    ("BatchNorm", TimeoutError, "all_gather")], ids=str)
def test_inside_join_a_collective_that_is_not_ddps_own_waits_for_ever_or_kills_a_rank(what, error, where):
    with RankGroup(2, "gloo") as group:
        group.run(train_unevenly)
        with pytest.raises(error, match=where):
            group.run(train_unevenly, what, timeout_s=5)


# Hooks


def test_what_may_be_sent_now_ends_at_the_first_gap():
    assert sendable("DCBA", set(), 0) == []
    assert sendable("DCBA", set("CBA"), 0) == []
    assert sendable("DCBA", set("DCA"), 0) == ["D", "C"]
    assert sendable("DCBA", set("DCA"), 2) == []
    assert sendable("DCBA", set("DCBA"), 2) == ["B", "A"]
    assert sendable("DCBA", set("DCBA"), 4) == []


# Buckets


def test_buckets_by_hand():
    sizes = [40, 4, 20, 16, 8, 120, 4]
    assert assign_buckets(sizes, 8, 40) == [[6, 5], [4, 3, 2], [1, 0]]
    assert assign_buckets(sizes, 4, 4) == [[6], [5], [4], [3], [2], [1], [0]]
    assert assign_buckets(sizes) == [[6, 5, 4, 3, 2, 1, 0]]
    assert assign_buckets([]) == []


def test_a_bucket_holds_one_dtype_and_the_bucket_that_is_complete_first_comes_first():
    single, double = (torch.zeros(1, dtype=dtype) for dtype in (torch.float32, torch.float64))
    assert assign_by_kind([single, double, single, double, single], 4, 16) == [[4], [3], [1], [2, 0]]
    assert assign_by_kind([double, single, single, double], 100, 100) == [[2, 1], [3, 0]]


@pytest.mark.parametrize("seed", range(20))
def test_buckets_are_those_of_torch(seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 100, (30,), generator=generator).tolist()
    dtypes = [torch.float32, torch.float64][:1 + seed % 2]
    tensors = [torch.zeros(n, dtype=dtypes[n % len(dtypes)]) for n in sizes]
    theirs, _ = dist._compute_bucket_assignment_by_size(tensors[::-1], [200, 700])
    theirs = [[len(tensors) - 1 - i for i in bucket] for bucket in theirs]
    assert assign_by_kind(tensors, 200, 700) == sorted(theirs, key=min, reverse=True)
    if len(dtypes) == 1:
        assert assign_buckets([x.nbytes for x in tensors], 200, 700) == theirs


def buckets_seen(rank, settings):
    """The names of what the library's buckets hold, of three steps, and in which order gradients come in one."""
    torch.manual_seed(0)
    net = resnet18(10).to(rank_device())
    names = {p: name for name, p in net.named_parameters()}
    arrived, steps = [], []
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(lambda p: arrived.append(names[p]))

    def look(state, bucket):
        steps[-1].append([names[p] for p in bucket.parameters()])
        return default_hooks.allreduce_hook(None, bucket)

    run = DistributedDataParallel(net, **settings)
    run.register_comm_hook(None, look)
    for _ in range(3):
        steps.append([])
        arrived.clear()
        run(torch.ones(2, 1, 28, 28, device=rank_device())).sum().backward()
    return steps, arrived


@pytest.mark.parametrize("settings, first_bytes, cap_bytes", [({}, 2**20, 25 * 2**20), ({"bucket_cap_mb": 12}, 12 * 2**20, 12 * 2**20)])
def test_the_library_fills_its_buckets_by_our_rule_in_the_order_in_which_gradients_came(settings, first_bytes, cap_bytes, group_of):
    (first, *later), arrived = group_of(2).run(buckets_seen, settings)[0]
    params = dict(resnet18(10).named_parameters())
    last_first = arrived[::-1]

    def by_rule(names):
        return [[names[i] for i in places]
                for places in assign_buckets([params[name].nbytes for name in names], first_bytes, cap_bytes)]

    assert len(first) == 1 and len(by_rule(last_first)) == len(later[0]) >= 3
    assert all(buckets == by_rule(last_first) != by_rule(list(params)) for buckets in later)


def test_with_unused_parameters_the_library_does_not_fill_its_buckets_anew(group_of):
    steps, _ = group_of(2).run(buckets_seen, {"find_unused_parameters": True})[0]
    assert steps[0] == steps[1] == steps[2] and len(steps[0]) > 1


# GPUs


def on_gpus(rank):
    return dist.get_backend(), {name: follow(rank, *way) for name, way in RIGHT.items()}


@pytest.mark.gpu
@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs NCCL")
@pytest.mark.parametrize("k", [1, pytest.param(2, marks=pytest.mark.gpu(2))])
def test_ranks_with_a_gpu_each_are_one_worker_after_every_step(k):
    for backend, ways in (ranks := run_ranks(on_gpus, k, timeout_s=100)):
        assert backend == "nccl"
        for way, (far, replica, moved) in ways.items():
            assert len(far) == 2 * NUM_STEPS and max(far) <= 1e-12, way
            assert same_bits([replica, ranks[0][1][way][1]]), way
            assert moved > 1e-4, way


@pytest.mark.slow
def test_a_static_graph_and_no_sync_cannot_be_combined_as_the_chapter_says() -> None:
    def accumulate(rank: int) -> str:
        model = DistributedDataParallel(nn.Linear(1, 1), static_graph=True)
        try:
            with model.no_sync():
                model(torch.ones(1, 1)).sum().backward()
        except RuntimeError as error:
            return str(error)
        return "no error"

    with RankGroup(2, "gloo") as group:
        assert all("INTERNAL ASSERT FAILED" in found for found in group.run(accumulate))


def test_a_copy_of_our_ddp_is_refused_since_it_would_not_average(group_of: Callable[[int], RankGroup]) -> None:
    def copied(rank: int) -> str:
        try:
            copy.deepcopy(OwnDDP(nn.Linear(1, 1)))
        except TypeError as error:
            return str(error)
        return "copied"

    assert all("copy .module" in said for said in group_of(1).run(copied))


@pytest.mark.slow
def test_pytorchs_ddp_fills_its_buckets_again_when_the_chapter_says(group_of: Callable[[int], RankGroup]) -> None:
    def allreduces(rank: int, settings: dict) -> list[int]:
        torch.manual_seed(0)
        model, counts = DistributedDataParallel(resnet18(10), **settings), []
        for _ in range(3):
            with Traffic() as sent:
                model(torch.ones(2, 1, 32, 32)).sum().backward()
            counts.append(sent.counts["allreduce"])
        return counts

    group = group_of(2)
    assert group.run(allreduces, {})[0] == [1, 3, 3]
    assert group.run(allreduces, {"find_unused_parameters": True})[0] == [4, 4, 4]
    assert group.run(allreduces, {"static_graph": True})[0] == [2, 1, 3]


@pytest.mark.slow
def test_where_the_exact_gradient_is_zero_adam_makes_steps_of_rounding_errors(group_of: Callable[[int], RankGroup]) -> None:
    def train(rank: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()
        X = torch.randn(12, 5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        model, optimizer = DistributedDataParallel(net), torch.optim.Adam(net.parameters(), lr=0.01)
        shard = X.tensor_split(dist.get_world_size())[rank]
        for _ in range(5):
            optimizer.zero_grad()
            (model(shard) * shard).mean().backward()
            optimizer.step()
        return {name: p.detach() for name, p in net.named_parameters()}

    [alone], (ours, _) = group_of(1).run(train), group_of(2).run(train)
    far = {name: distance([alone[name]], [ours[name]]) for name in alone}
    bias = far.pop("self_attn.in_proj_bias")  # the keys' part of it: softmax ignores what is the same for all of them
    assert max(far.values()) < 1e-14 and 1e-13 < bias < 1e-6
