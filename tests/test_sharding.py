"""Tests of d2lpar.sharding: every stage, and the library, equals one worker; what it holds, sends and refuses."""

import gc
import tempfile
import warnings
from functools import partial
from operator import attrgetter

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from d2lpar.ddp import average_flat, broadcast_start, trained_params
from d2lpar.ranks import Traffic, rank_device, trace_rank
from d2lpar.scratch import distance, same_bits
from d2lpar.sharding import (
    Memory,
    Whole,
    all_gather_parts,
    mean_part,
    padded,
    parts_to_step,
    reduce_gradient,
    shard_parameters,
    step_and_gather,
)
from test_ddp import message_of

pytestmark = [pytest.mark.usefixtures("one_core"), pytest.mark.timeout(180)]

NUM_STEPS = 4
SIZES = {1: [7], 2: [2, 7], 3: [4, 0, 3], 5: [1, 3, 2, 4, 1]}  # of the shards, by the number of ranks
MAKES = {"Adam": partial(torch.optim.Adam, lr=0.01), "momentum": partial(torch.optim.SGD, lr=0.3, momentum=0.9)}


class Odd(nn.Module):
    """A frozen layer, a weight of two layers, another with two names, and sizes that no number of ranks divides."""

    def __init__(self):
        super().__init__()
        self.first, self.tied, self.frozen = (nn.Linear(7, 7) for _ in range(3))
        self.tied.weight = self.first.weight
        self.frozen.requires_grad_(False)
        self.scale = self.same = nn.Parameter(torch.ones(1))
        self.out = nn.Linear(7, 3)

    def forward(self, x):
        return self.out(self.frozen(torch.tanh(self.tied(torch.tanh(self.first(x))))) * self.scale + self.same)


def odd(seed=0):
    torch.manual_seed(seed)
    return Odd().double().to(rank_device())


def gather_all(params, parts):
    for p, part in zip(params, parts):
        p.data.copy_(all_gather_parts(part.data, p.shape))


def stage_1(net, make, before=lambda params: None, reduce=reduce_gradient, step=None, gather=gather_all):
    params, parts = trained_params(net), parts_to_step(net)
    optimizer = make(parts)

    def update():
        before(params)
        for p, part in zip(params, parts):
            reduce(p, part)
        (step or type(optimizer).step)(optimizer)
        gather(params, parts)
        optimizer.zero_grad()
    return update


def stage_2(net, make, reduce=reduce_gradient):
    params, parts = trained_params(net), parts_to_step(net)
    optimizer = make(parts)
    for p, part in zip(params, parts):
        p.register_post_accumulate_grad_hook(partial(reduce, part=part))

    def update():
        assert all(p.grad is None for p in params)
        step_and_gather(optimizer, params, parts)
    return update


def stage_3(net, make):
    shard_parameters(net)
    optimizer = make([p for p in net.parameters() if p.requires_grad])

    def update():
        optimizer.step()
        optimizer.zero_grad()
    return update


def stage_3_twice(net, make):
    for layer in net.children():
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    return stage_3(net, make)


def cut_by_library(net):
    mesh = init_device_mesh(rank_device().type, (dist.get_world_size(),))
    for layer in [*net, net] if isinstance(net, nn.Sequential) else [net]:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)


def library(net, make):
    cut_by_library(net)
    optimizer = make([p for p in net.parameters() if p.requires_grad])

    def update():
        optimizer.step()
        optimizer.zero_grad()
    return update


def own_gradient(p, part):
    part.grad = padded(p.grad).chunk(dist.get_world_size())[dist.get_rank()]
    p.grad = None


def summed(p, part):
    reduce_gradient(p, part)
    part.grad *= dist.get_world_size()


def one_is_nan(params):
    if dist.get_rank() == 0:
        params[-1].grad.flatten()[0] = float("nan")


def last_rank_rests(optimizer):
    if dist.get_rank() < dist.get_world_size() - 1:
        type(optimizer).step(optimizer)


def one_missing(net, make):
    return stage_1(net, lambda parts: make(parts[:-1]))


def tied_cut_apart(net, make):
    net.tied.weight = nn.Parameter(net.tied.weight.detach().clone())
    return stage_3(net, make)


RIGHT = {"stage 1": stage_1, "stage 2": stage_2, "stage 3": stage_3, "stage 3, gathered twice": stage_3_twice, "library": library}
WRONG = {
    "NaN": partial(stage_1, before=one_is_nan),
    "a tensor missing": one_missing,
    "a rank left out": partial(stage_1, step=last_rank_rests),
    "own gradient": partial(stage_1, reduce=own_gradient),
    "summed": partial(stage_1, reduce=summed),
    "not gathered": partial(stage_1, gather=lambda params, parts: None),
    "tied cut apart": tied_cut_apart,
}


def whole(net, name):
    p = attrgetter(name)(net)
    return p.full_tensor() if hasattr(p, "full_tensor") else p


def follow(rank, way, make):
    """How far from one worker after each step, at most; the parameters at the end; and whether all of them moved."""
    sizes, net, alone = SIZES[dist.get_world_size()], odd(), odd()
    start = [p.detach().clone() for p in alone.parameters()]
    frozen = {name for name, p in alone.named_parameters() if not p.requires_grad}
    update, theirs, far = way(net, make), make(trained_params(alone)), []
    for step in range(NUM_STEPS):
        X = torch.randn(sum(sizes), 7, generator=torch.Generator().manual_seed(step), dtype=torch.float64).to(rank_device())
        y = X[:, :3].argmax(1)
        loss = F.cross_entropy(net(X.split(sizes)[rank]), y.split(sizes)[rank], reduction="sum")
        (loss * len(sizes) / len(X)).backward()
        update()
        theirs.zero_grad()
        F.cross_entropy(alone(X), y).backward()
        theirs.step()
        pairs = [(whole(net, name), p) for name, p in alone.named_parameters(remove_duplicate=False)]
        assert len(pairs) == 10
        far.append(distance(*zip(*pairs)))
    moved = {name: not torch.equal(p, q) for (name, p), q in zip(alone.named_parameters(), start)}
    assert moved == {name: name not in frozen for name in moved}
    return max(far), [p.detach().cpu() for p, _ in pairs]


def every_way(rank):
    return {(name, by): follow(rank, way, make) for name, way in RIGHT.items() for by, make in MAKES.items()}


@pytest.fixture(scope="module", params=[1, 2, 3, 5])
def ranks(request, group_of):
    return group_of(request.param).run(every_way, timeout_s=150)


@pytest.mark.parametrize("by", MAKES)
@pytest.mark.parametrize("way", RIGHT)
def test_every_rank_equals_one_worker_after_every_step(ranks, way, by):
    far, ends = zip(*(rank[way, by] for rank in ranks))
    assert max(far) <= 1e-12
    assert same_bits(ends)


@pytest.mark.parametrize("way", WRONG)
def test_what_is_wrong_is_far_from_one_worker(group_of, way):
    far, _ = zip(*group_of(2).run(follow, WRONG[way], MAKES["momentum"]))
    assert max(far) > 1e-4


# The two halves


def halves(rank, n):
    X = torch.arange(float(n), dtype=torch.float64, device=rank_device()) * (rank + 1)
    part = mean_part(X)
    return part.cpu(), all_gather_parts(part, X.shape).cpu()


@pytest.mark.parametrize("n", [1, 5, 6])
def test_the_halves_together_are_the_mean_and_each_part_is_there_once(group_of, n):
    parts, wholes = zip(*group_of(3).run(halves, n))
    right = 2 * torch.arange(float(n), dtype=torch.float64)  # the mean of 1, 2 and 3 times it
    assert all(torch.equal(x, right) for x in wholes)
    assert [len(part) for part in parts] == [-(-n // 3)] * 3
    assert torch.equal(torch.cat(parts)[:n], right) and not torch.cat(parts)[n:].any()


def scatter(rank):
    X = torch.ones(4, device=rank_device())
    return [span.what for span in trace_rank(rank, lambda: mean_part(X))]


def test_gloo_makes_the_reduce_scatter_of_an_allreduce(group_of):
    assert group_of(2).run(scatter) == [["all_reduce"]] * 2


# What is held, and what is sent


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 4)).to(rank_device())


def storage_bytes(tensors):
    here = [x.to_local() if hasattr(x, "to_local") else x for x in tensors if x is not None]
    places = [x.untyped_storage() for x in here]
    return sum({place.data_ptr(): place.nbytes() for place in places}.values())


def weigh(rank, way):
    """Bytes of parameters, gradients and Adam's numbers; what a step sends; whole weights when the forward pass is over."""
    net, made, read = layers(), [], []
    update = way(net, lambda params: made.append(torch.optim.Adam(params)) or made[0])
    for m in net.modules():
        if isinstance(m, Whole):
            m.register_forward_hook(lambda m, args, out: read.append((StorageWeakRef(out.untyped_storage()), out.untyped_storage().nbytes())))
    X = torch.rand(4, 6, device=rank_device())
    with CommDebugMode() as counted, Traffic() as sent, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = net(X).square().sum()
        gc.collect()
        kept = sum(size for place, size in read if not place.expired())
        loss.backward()
        held = {*net.parameters(), *made[0].param_groups[0]["params"]}
        gradients = storage_bytes(p.grad for p in held)
        update()
    noted = storage_bytes(x for state in made[0].state.values() for x in state.values() if x.dim())
    assert counted.get_total_counts() == sent.counts.total()
    return (storage_bytes(held), gradients, noted), dict(sent.counts), dict(sent.bytes_by_name), kept


BYTES = 4 * (56 + 72 + 36)  # two ranks divide every tensor


@pytest.mark.parametrize("way, divided", [("stage 1", (1, 1, 2)), ("stage 2", (1, 2, 2)), ("stage 3", (2, 2, 2)),
                                          ("stage 3, gathered twice", (2, 2, 2)), ("library", (2, 2, 2))])
def test_each_stage_holds_what_the_formula_says_to_the_byte(group_of, way, divided):
    held = [row[0] for row in group_of(2).run(weigh, RIGHT[way])]
    assert held == [tuple(times * BYTES / by for times, by in zip((1, 1, 2), divided))] * 2


@pytest.mark.parametrize("way, gathers, scatters, messages", [
    ("stage 1", 1, 1, (6, 6)), ("stage 2", 1, 1, (6, 6)), ("stage 3", 1, 1, (6, 6)), ("stage 3, gathered twice", 2, 1, (12, 6)),
    ("library", 2, 1, (6, 3))])
def test_a_step_sends_as_much_as_an_allreduce_or_half_as_much_again(group_of, way, gathers, scatters, messages):
    for _, counts, sizes, _ in group_of(2).run(weigh, RIGHT[way]):
        assert counts == {"allgather_base": messages[0], "reduce_scatter_base": messages[1]}
        assert sizes == {"allgather_base": gathers * BYTES, "reduce_scatter_base": scatters * BYTES / 2}


def test_weights_are_whole_after_the_forward_pass_unless_they_are_gathered_twice(group_of):
    for way, least, most in (("stage 3", 4 * (64 + 32), BYTES), ("stage 3, gathered twice", 0, 0)):
        for *_, kept in group_of(2).run(weigh, RIGHT[way]):
            assert least <= kept <= most


def stage_0(net, make):
    optimizer = make(net.parameters())
    return lambda: (average_flat(net), optimizer.step(), optimizer.zero_grad())


def piled_up(net, make):
    waiting = []

    def reduce(p, part):
        waiting.append((p, part))
        if len(waiting) == len(list(net.parameters())):
            while waiting:
                reduce_gradient(*waiting.pop())
    return stage_2(net, make, reduce)


def stack():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(16))).to(rank_device())


def peak(rank, way):
    """Bytes at rest, when backward is over, and at the peak of a step, by the bytes of all parameters."""
    net = stack()
    size = storage_bytes(net.parameters())
    update = way(net, partial(torch.optim.Adam, foreach=False))
    with Memory() as memory, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            net(torch.rand(1, 128, device=rank_device())).square().mean().backward()
            dist.barrier()  # by then gloo's threads have let go
            at_rest = memory.now()
            update()
    return at_rest / size, max(memory.history) / size


@pytest.mark.parametrize("way, at_rest, least, most", [
    (stage_0, 4, 5, 5.2), (stage_1, 3, 3, 3.4), (stage_2, 2.5, 2.5, 2.9), (piled_up, 2.5, 3, 3.4), (stage_3, 2, 2.5, 2.9),
    (stage_3_twice, 2, 2, 2.4), (library, 2, 2, 2.4)])
def test_the_peak_is_beyond_the_formula_by_a_layer_or_by_what_is_kept_whole(group_of, way, at_rest, least, most):
    for rest, top in group_of(2).run(peak, way):
        assert at_rest <= rest <= at_rest + 0.07  # a layer that gloo's threads hold
        assert least <= top <= most


def test_memory_weighs_what_is_there_once_each_and_lets_go_of_what_is_gone():
    x = torch.ones(1000)
    with Memory() as memory:
        y = x + 1
        y.view(10, 100).t()
        assert memory.now() == max(memory.history) == 8000
        z = torch.cat([x, y])
        assert memory.now() == max(memory.history) == 16000
        del y, z
        assert x.add_(1).numel() and memory.now() == 4000 and max(memory.history) == 16000


def micro_batches(rank):
    """The gradients of two micro-batches together, reduced after each of them and at the end."""
    found = []
    for each in (True, False):
        net = odd()
        params, parts = trained_params(net), parts_to_step(net)
        for seed in range(2):
            torch.manual_seed(10 * seed + rank)
            net(torch.randn(3, 7, dtype=torch.float64).to(rank_device())).square().sum().backward()
            if each or seed:
                for p, part in zip(params, parts):
                    reduce_gradient(p, part)
        found.append([part.grad.cpu() for part in parts])
    return found


def test_gradients_of_micro_batches_add_up(group_of):
    for each, at_the_end in group_of(2).run(micro_batches):
        assert distance(each, at_the_end) <= 1e-12


# Traps of the library, each as it was found


def in_place_on_a_view(rank, inplace):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 8), nn.Unflatten(1, (4, 2))), nn.ReLU(inplace=inplace),
                        nn.Linear(2, 2)).to(rank_device())
    cut_by_library(net)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            net(torch.rand(4, 6, device=rank_device())).square().sum().backward()
        except RuntimeError as error:
            return str(caught[0].message), str(error)
    return str(caught[0].message), ""


def other_starts(rank):
    torch.manual_seed(rank)
    net = nn.Linear(6, 8).to(rank_device())
    own = net.weight.detach().clone()
    cut_by_library(net)
    return own.cpu(), net.weight.full_tensor().cpu()


def test_an_operation_in_place_on_a_view_loses_the_gathering(group_of):
    for warning, error in group_of(2).run(in_place_on_a_view, True):
        assert "returned a view tensor" in warning and error
    for warning, error in group_of(2).run(in_place_on_a_view, False):
        assert "returned a view tensor" in warning and not error


def test_the_library_makes_a_patchwork_of_different_starts(group_of):
    (first, whole_0), (second, whole_1) = group_of(2).run(other_starts)
    assert torch.equal(whole_0, whole_1)
    assert torch.equal(whole_0, torch.cat([first[:4], second[4:]])) and not torch.equal(first, second)


def save(rank, folder):
    net = layers()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(1.0)
    cut_by_library(net)
    dcp.save({"net": get_model_state_dict(net)}, checkpoint_id=folder)
    here = sum(p.to_local().numel() for p in net.state_dict().values())
    everything = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
    return here, [p.full_tensor().cpu() for p in net.parameters()], [x.cpu() for x in everything.values()]


def load(rank, folder):
    net = layers()
    cut_by_library(net)
    dcp.load(state := {"net": get_model_state_dict(net)}, checkpoint_id=folder)
    return [x.full_tensor().cpu() for x in state["net"].values()], [p.full_tensor().cpu() for p in net.parameters()]


def test_rank_0_has_half_a_network_and_what_all_save_another_number_of_ranks_can_load(group_of):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        (here, wholes, everything), _ = group_of(2).run(save, folder)
        loaded = group_of(3).run(load, folder)
    assert here == BYTES / 4 / 2 and same_bits([wholes, everything])
    for state, params in loaded:
        assert same_bits([wholes, state, params])


# What is refused


def refusals(rank):
    found = {}
    for cut in (parts_to_step, shard_parameters):
        found[cut.__name__, "start"] = message_of(cut, odd(seed=rank))
        same = odd(seed=rank)
        broadcast_start(same)
        found[cut.__name__, "broadcast"] = message_of(cut, same)
        net = odd()
        shard_parameters(net)
        found[cut.__name__, "twice"] = message_of(cut, net)
        found[cut.__name__, "shape"] = message_of(cut, nn.Linear(2, 2 + rank).to(rank_device()))
    return found


def test_other_starts_and_other_networks_are_refused_on_all_ranks(group_of):
    for found in group_of(2).run(refusals):
        for cut in ("parts_to_step", "shard_parameters"):
            assert found[cut, "start"] == ("ValueError: ranks 0 and 1 start with different parameters. Call "
                                           "broadcast_start(module) first")
            assert found[cut, "broadcast"] == "nothing was refused"
            assert found[cut, "twice"].startswith("ValueError: part of this network is sharded already")
            assert found[cut, "shape"].startswith("ValueError: the networks of rank 0 and rank 1 differ in")


@pytest.mark.parametrize("cut", [parts_to_step, shard_parameters])
def test_without_a_group_it_is_refused_in_words(cut):
    with pytest.raises(ValueError, match="there is no group of processes"):
        cut(nn.Linear(2, 2))
