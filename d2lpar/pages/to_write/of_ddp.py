"""The checks of the functions of `d2lpar.ddp` that readers write.

Most of these need ranks. A scene is called on each of them, and what it returns is compared rank by rank.
"""

import warnings

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lpar.pages.differences import Difference, call, compare_values
from d2lpar.pages.on_ranks import SAME_ORDER, compare_on_ranks
from d2lpar.ranks import Traffic


def vector(*values):
    """A tensor of these values, in float64."""
    return torch.tensor(values, dtype=torch.float64)


def layer(*values):
    """A module with a parameter for each value or tuple of values."""
    module = nn.Module()
    for i, value in enumerate(values):
        module.register_parameter(f"p{i}", nn.Parameter(vector(*(value if isinstance(value, tuple) else (value,)))))
    return module


# How does DDP average while backward runs? the same start


def start(rank, broadcast, values, buffers=()):
    """A network whose parameters and buffers are these on its rank, and what they are afterwards."""
    net = layer(*values[rank])
    for name, value in dict(buffers[rank] if buffers else {}).items():
        net.register_buffer(name, torch.tensor(value), persistent=False)
    known = [*net.parameters()]
    broadcast(net)
    found = {f"p{i}" if len(known) > 1 else "the parameter": p.detach() for i, p in enumerate(net.parameters())}
    return {**found, **{f"the buffer {name!r}": x for name, x in net.named_buffers()},
            **{f"p{i} of an optimizer that was created before": p.detach() for i, p in enumerate(known)}}


def start_of_a_network(rank, broadcast):
    """A network with a frozen layer and BatchNorm, as each rank creates it."""
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)).double()
    net[2].requires_grad_(False)
    net[1].running_mean += rank
    net[1].num_batches_tracked += 10 * rank
    broadcast(net)
    return {**{f"`{name}`": x.detach() for name, x in net.state_dict().items()},
            "what is trained": [name for name, p in net.named_parameters() if p.requires_grad]}


def warned(rank, broadcast):
    """What PyTorch warns of, here and in the next backward pass."""
    net = nn.Linear(2, 1)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        broadcast(net)
        net(torch.ones(1, 2)).sum().backward()
    return {"PyTorch's warning": next((str(w.message) for w in found if "autograd" in str(w.message)), "nothing")}


def check_broadcast_start(yours):
    try:
        compare_on_ranks(yours, "if the parameter is 5 on rank 0 and 7 on rank 1", start, [[5], [7]])
    except Difference as difference:
        said = str(difference)
        if "get_rank()" in said and "rank 0 and rank 1 are" in said:
            said = said.replace(SAME_ORDER, "`src` is the rank that sends, so it must be the same on all ranks.")
        raise Difference(said) from None
    compare_on_ranks(yours, "on three ranks with two parameters", start, [[(1, 2), 3], [(4, 5), 6], [(7, 8), 9]],
                     world_size=3)
    compare_on_ranks(yours, "if the network has a buffer", start, [[5], [7]], [{"seen": 3.0}, {"seen": 4.0}])
    compare_on_ranks(yours, "for a network with a frozen layer and BatchNorm", start_of_a_network)
    try:
        compare_on_ranks(yours, "if a backward pass comes next", warned)
    except Difference as difference:
        raise Difference("PyTorch warns in the next backward pass that a collective has changed a parameter that "
                         "autograd watches. Call the collective with `x.detach()`.") from difference


# How does DDP average while backward runs? after backward


def average(rank, fn, grads):
    """Parameters with these gradients on the ranks; None where a rank has none. The gradients afterwards."""
    net = layer(*[next(g for g in of_one if g is not None) for of_one in zip(*grads)])
    for p, grad in zip(net.parameters(), grads[rank]):
        p.grad = None if grad is None else vector(*(grad if isinstance(grad, tuple) else (grad,)))
    fn(net)
    return {f"the gradient of p{i}" if len(grads[0]) > 1 else "the gradient": p.grad
            for i, p in enumerate(net.parameters())}


def unused(rank, fn):
    """A parameter that no rank has used."""
    net = layer(1, (2, 3))
    used, not_used = net.parameters()
    used.grad = vector(4.0)
    fn(net)
    return {"the gradient of the parameter that no rank has used": not_used.grad}


def check_average_gradients(yours):
    compare_on_ranks(yours, "if the gradients of two ranks are 2 and 6", average, [[2], [6]])
    compare_on_ranks(yours, "if the gradients of two ranks are 2 and 5", average, [[2], [5]])
    compare_on_ranks(yours, "if the gradients of three ranks are 1, 2 and 6", average, [[1], [2], [6]], world_size=3)
    compare_on_ranks(yours, "for two parameters, p0 and p1", average, [[(1, 2), 3], [(5, 8), 13]])
    compare_on_ranks(yours, "if rank 1 has no gradient", average, [[2], [None]])
    compare_on_ranks(yours, "if rank 1 has no gradient for the first of two parameters", average, [[2, 4], [None, 6]])
    compare_on_ranks(yours, "if no rank has used the second of two parameters", unused)
    compare_on_ranks(yours, "if p0 is frozen and has no gradient", frozen_first)


def frozen_first(rank, fn):
    """A network whose first parameter is frozen."""
    net = layer(1, 2)
    p0, p1 = net.parameters()
    p0.requires_grad_(False)
    p1.grad = vector(4.0 + 2 * rank)
    fn(net)
    return {"the gradient of p0": p0.grad, "the gradient of p1": p1.grad}


def check_average_flat(yours):
    check_average_gradients(yours)
    compare_on_ranks(yours, "for parameters of 2, 6 and 1 values, the second with two rows", shaped)


def shaped(rank, fn):
    """Parameters of different shapes; the number of collectives."""
    net = nn.Module()
    net.a, net.b, net.c = (nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in ((2,), (2, 3), (1,)))
    for i, p in enumerate(net.parameters()):
        p.grad = torch.arange(p.numel(), dtype=torch.float64).view_as(p) * (rank + 1) + i
    with Traffic() as sent:
        fn(net)
    return {"the number of collectives": sent.counts.total(), **{f"the gradient of {name}": p.grad
                                                                for name, p in net.named_parameters()}}


# How does DDP average while backward runs? in hooks


def check_sendable(yours):
    def case(order, arrived, num_sent):
        names = f"{{{', '.join(map(repr, arrived))}}}" if arrived else "set()"
        words = f"for order = {list(order)}, arrived = {names} and num_sent = {num_sent}"
        compare_values(yours, words, list(order), set(arrived), num_sent)

    for order, arrived, num_sent in (
            ("BA", "", 0), ("BA", "B", 0), ("BA", "B", 1), ("BA", "A", 0), ("BA", "AB", 0), ("BA", "AB", 1), ("BA", "AB", 2),
            ("FGHK", "GH", 0), ("FGHK", "FGH", 0), ("FGHK", "FHK", 0), ("FGHK", "FHK", 1), ("FGHK", "FGHK", 1),
            ("FGHK", "FGK", 2)):
        case(order, arrived, num_sent)
    same_values, shapes = ([nn.Parameter(torch.zeros(n)) for n in sizes] for sizes in ((2, 2, 2), (3, 8, 2)))
    why = ("`==` compares the values of two tensors, and so does `in` for a list. `in` for a set looks for the very same "
           "object.")
    for words, order, arrived, num_sent in (
            ("if `order` consists of three parameters of equal values, of which the first two have arrived", same_values, 2, 0),
            ("if `order` consists of three parameters of different shapes, and the first of the two that have arrived "
             "has been sent", shapes, 2, 1)):
        try:
            found = list(call(yours, words, list(order), set(order[:arrived]), num_sent))
        except Difference as difference:
            raise Difference(f"{difference}. ({why})" if "tensor" in str(difference).lower() else str(difference)) from None
        if [id(p) for p in found] != [id(p) for p in order[num_sent:arrived]]:
            raise Difference(f"{words}, your function returns the wrong parameters ({len(found)} of them). ({why})")


class Late:
    """A collective that is under way: the sum is there after `wait`."""

    def __init__(self, p, total):
        self.grad, self.total, self.waits = p.grad, total, 0

    def wait(self):
        """Now the sum is there."""
        self.waits += 1
        self.grad.copy_(self.total)


class Backwards(set):
    """A set that is iterated from its last element to its first, so that nobody can rely on its order."""

    def __init__(self, things):
        super().__init__(things)
        self.things = list(things)

    def __iter__(self):
        return iter([x for x in reversed(self.things) if x in self])


def end_of_backward(rank, fn, totals):
    """The gradients after the end of a backward pass whose collectives give these sums, and what is left over."""
    net = layer(*totals)
    order = [*net.parameters()][::-1]
    for p in order:
        p.grad = torch.full_like(p, 100.0)
    before, arrived, works = list(order), Backwards(order), [Late(p, vector(*(t if isinstance(t, tuple) else (t,))))
                                  for p, t in zip(order, totals[::-1])]
    fn(order, arrived, works)
    found = {"the number of parameters in `order`, which the next backward needs,": len(order)}
    order[:] = before
    return {**found, **{f"the gradient of p{i}" if len(totals) > 1 else "the gradient": p.grad
               for i, p in enumerate(net.parameters())},
            "the number of gradients left in `arrived`": len(arrived), "the number of works left in `works`": len(works)}


def check_finish_average(yours):
    compare_on_ranks(yours, "on two ranks, if the gradient is 100 before the sum has arrived and the sum is 8",
                     end_of_backward, [8])
    compare_on_ranks(yours, "on three ranks, if the sum is 12", end_of_backward, [12], world_size=3)
    compare_on_ranks(yours, "on two ranks, if the sums for p0 and p1 are 2 and 6", end_of_backward, [2, (6, 10)])
    compare_on_ranks(yours, "on two ranks, if the sums for four parameters are 7, 1, 3 and 9", end_of_backward, [7, 1, 3, 9])


def check_assign_buckets(yours):
    for sizes, caps in (
            ([3], (5, 5)), ([7, 3], (5, 5)), ([3, 7], (5, 5)), ([2, 5, 5], (4, 9)), ([2, 5, 4], (4, 9)), ([6, 1, 4], (4, 9)),
            ([1, 1, 1, 20, 1, 8], (4, 10)), ([5, 5, 5, 5, 5], (4, 10)), ([2, 2, 2, 2, 2, 2], (2, 4)),
            ([7, 7, 7, 7, 7], (20, 10)), ([1, 2], (100, 100)), ([], (4, 9)), ([30_000_000, 2_000_000], ())):
        words = (f"for tensors of {', '.join(f'{size:,}' for size in sizes)} bytes" if len(sizes) > 1 else
                 f"for one tensor of {sizes[0]} bytes" if sizes else "if there are no tensors")
        if len(sizes) > 1:
            words += f", first_bytes = {caps[0]} and cap_bytes = {caps[1]}" if caps else " and the caps that PyTorch has"
        compare_values(yours, words, sizes, *caps)


# Where does each rank's data come from?


class Moody(nn.Module):
    """Puts x into class 1 if x > 0, in evaluation mode; in training mode, the other way round."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.frozen, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(1, affine=False)
        self.frozen.eval()  # as its owner has left it

    def forward(self, x):
        x = x * self.scale * (-1 if self.training else 1)
        self.norm(x)  # counts in training mode
        return torch.cat([-x, x], 1)


def evaluated(rank, fn, values, wrapped=False):
    """The answer for minibatches with these values of x, whose label is 1 if x > 0, wrong for |x| > 10."""
    net = Moody()
    run = DistributedDataParallel(net) if wrapped else net
    batches = [(torch.tensor(x)[:, None], torch.tensor([int((v > 0) != (abs(v) > 10)) for v in x])) for x in values[rank]]
    found = fn(run, batches)
    return {**counts(found), "`net.training` afterwards": net.training,
            "`training` of a layer that was in evaluation mode before": net.frozen.training,
            "the number of minibatches in BatchNorm's statistics": net.norm.state_dict()["num_batches_tracked"].item()}


def counts(found):
    """The two numbers that it should return, by name."""
    pair = isinstance(found, (list, tuple)) and len(found) == 2
    return dict(zip(("the number of right answers", "the number of examples"), found)) if pair else {"the result": found}


def check_count_right_on_ranks(yours):
    def case(words, *values, **settings):
        compare_on_ranks(yours, words, evaluated, values, *settings.values(), world_size=len(values))

    case("if rank 0 has 3 examples, all right, and rank 1 has 2, both wrong", [[1.0, -2.0, 3.0]], [[-20.0, 20.0]])
    case("if rank 0 has two minibatches and rank 1 has one", [[1.0, 20.0], [3.0]], [[-2.0, 1.0]])
    case("if the second of three ranks has no minibatch", [[1.0, -20.0]], [], [[2.0], [4.0]])
    case("if the network is wrapped in DDP, and rank 1 has no minibatch", [[1.0, -20.0]], [], wrapped=True)
    compare_on_ranks(yours, "during an evaluation", recording)


def recording(rank, fn):
    """Whether gradients are recorded."""
    net, seen = Moody(), []
    net.register_forward_hook(lambda net, args, out: seen.append(out.requires_grad))
    found = fn(net, [(torch.ones(2, 1), torch.ones(2, dtype=torch.long))])
    return {**counts(found), "`requires_grad` of the network's output": seen[0]}
