"""The checks of the projects.

    python book/projects/check.py mine/my_training.py            a training loop on k devices, against a single device
    python book/projects/check.py one.pt two.pt three.pt         checkpoints, against each other

The first form imports the file, trains its network for a few steps in float64 on 1, 2 and 3 devices, and does the same
on a single device with a loop of its own. Where the two differ, it tries out known mistakes in that loop: the one that
leads to the same parameters is the one that was made.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from d2lpar import distance, try_devices
from d2lpar.checks import overlaps
from d2lpar.pages.differences import OutOfTime, first_line, time_limit

NAMES = {
    "make_net": "`make_net()` returns a new network",
    "load_data": "`load_data()` returns two tensors, the examples X and the labels y",
    "loss": "`loss(scores, y)` returns one number for each example",
    "make_optimizer": "`make_optimizer(params)` returns an optimizer for these parameters",
    "train": "`train(num_devices, net, minibatches)` returns a list with one trained network for each device",
}
SIZES = 7, 7, 4  # of the minibatches: unequal shards on 2 and 3 devices, and a last minibatch that is smaller
NEAR = 1e-6  # of the step: a known mistake leads to these parameters
LIMIT_S = 120.0
SPLITS = "Why can a minibatch be cut?"  # chapters, by their titles
SHARES = "Two bugs that train without an error"
NORMALISES = "What does BatchNorm see?"


def not_yet(words: str) -> NoReturn:
    """Say what is wrong, and stop."""
    sys.exit(f"Not yet: {words}")


# the file


def load(path: Path) -> Any:
    """The file as a module; its folder is searched for the modules that it imports."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    call(path, f"importing {path.name}", spec.loader.exec_module, module)
    if (missing := [name for name in NAMES if not callable(getattr(module, name, None))]) and missing != ["train"]:
        not_yet(f"{path.name} has no function `{missing[0]}`. {NAMES[missing[0]]}.")
    return module


def call(path: Path, doing: str, fn: Callable, *args: Any) -> Any:
    """What `fn(*args)` returns; if it raises or does not return, that is said with the line in her file."""
    try:
        with time_limit(LIMIT_S):
            return fn(*args)
    except (Exception, SystemExit) as error:
        lines = [entry for entry in extract_tb(error.__traceback__) if Path(entry.filename) == path]
        where = f" in line {lines[-1].lineno}, `{lines[-1].line}`" if lines else ""
        if isinstance(error, SyntaxError):
            where = f" in line {error.lineno}"
        if isinstance(error, OutOfTime):
            hint = (' Does the file train when it is imported? Put that part under `if __name__ == "__main__":`.'
                    if doing.startswith("importing") else "")
            not_yet(f"{doing} has taken more than {LIMIT_S:.0f} seconds; it was stopped{where}.{hint}")
        said = error.msg if isinstance(error, SyntaxError) else first_line(error)
        not_yet(f"{doing} raises {type(error).__name__}{where}: {said}{advice(error, said, doing)}")


def advice(error: BaseException, said: str, doing: str) -> str:
    """The end of the sentence, and what to do about some errors whose own words do not say it."""
    if isinstance(error, RuntimeError) and ("dtype" in said or "scalar type" in said or "Input type" in said):
        return (". (The check computes in float64. Does `train`, or the network, turn something into float32, or make "
                "a tensor without `dtype=X.dtype`?)")
    if isinstance(error, ValueError) and "overlap in memory" in said:
        return f'. (Are the replicas real copies? On a CPU, `.to(device)` copies nothing: see "{SHARES}".)'
    if isinstance(error, TypeError) and "argument" in said and "running `train`" in doing:
        return f". (The check calls {NAMES['train'].split(' returns')[0]}; all other arguments need default values.)"
    return "" if said.endswith(".") else "."


# the parts


def examples_of(module: Any, path: Path) -> list[tuple[Tensor, Tensor]]:
    """Three small minibatches of her own data, in float64."""
    data = call(path, "running `load_data`", module.load_data)
    if not (isinstance(data, (tuple, list)) and len(data) == 2 and all(isinstance(x, Tensor) for x in data)):
        not_yet(f"`load_data` should return two tensors, `return X, y`, but it returns {kind(data)}.")
    X, y = data
    if len(X) != len(y):
        not_yet(f"`load_data` returns {len(X)} examples, but {len(y)} labels.")
    if len(X) < sum(SIZES):
        not_yet(f"`load_data` returns {len(X)} examples, but the check needs {sum(SIZES)}.")
    chosen = torch.linspace(0, len(X) - 1, sum(SIZES)).long()  # of all classes, if they come in order
    chosen = chosen[torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0))]
    X, y = (x[chosen].detach().double() if x.is_floating_point() else x[chosen] for x in (X, y))
    return list(zip(X.split(SIZES), y.split(SIZES)))


def network_of(module: Any, path: Path) -> nn.Module:
    """Her network in float64, as it would start; without dropout, whose masks differ from device to device."""
    torch.manual_seed(0)
    net = call(path, "running `make_net`", module.make_net)
    if not isinstance(net, nn.Module):
        not_yet(f"`make_net` should return a network, an `nn.Module`, but it returns {kind(net)}.")
    if not any(p.requires_grad for p in net.parameters()):
        not_yet("the network has no parameter that can be trained. In a module of your own, layers must be attributes "
                "(`self.layer = nn.Linear(...)`), and a list of layers must be an `nn.ModuleList`.")
    for name, layer in net.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            not_yet(f"the layer `{name}` of the network is a {type(layer).__name__}. It normalises with the mean and "
                    "the variance of all examples that it is given, and a device gives it only its shard. So it does "
                    "not split: with it, k devices do not take the step of a single device. For this project, use a "
                    "layer that looks at one example at a time, such as `nn.GroupNorm` or `nn.LayerNorm`. The chapter "
                    f'"{NORMALISES}" explains what else you can do.')
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = 0.0
        if isinstance(layer, (nn.MultiheadAttention, nn.RNNBase)):
            layer.dropout = 0.0
    return net.double().train()


def look_at_parts(module: Any, path: Path, net: nn.Module, minibatches: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Stop unless the loss is one number per example, is no matter of chance, and depends on that example alone."""
    X, y = minibatches[0]

    def losses(X: Tensor, y: Tensor) -> Tensor:
        scores = call(path, "running the network", copy.deepcopy(net), X)
        return call(path, "running `loss`", module.loss, scores, y)

    each = losses(X, y)
    if not isinstance(each, Tensor) or each.shape != (len(X),):
        shape = f"a tensor of shape {tuple(each.shape)}" if isinstance(each, Tensor) else kind(each)
        not_yet(f"`loss` should return one number for each example, here a tensor of shape ({len(X)},), but it returns "
                f"{shape}. (PyTorch's losses do this with `reduction=\"none\"`.) A device must be able to add up the "
                "losses of its shard, and only the whole minibatch has the number to divide by.")
    if not bool(each.isfinite().all()):
        not_yet("the loss of the first minibatch is not finite.")
    if not each.requires_grad:
        not_yet("`loss` returns a tensor that does not depend on the network: nothing can be learned from it. Is there "
                "a `detach()`, an `item()` or a `no_grad`?")
    if not torch.equal(each, losses(X, y)):
        not_yet("the network, or `loss`, draws random numbers: called twice, it gives different results. Each device "
                "draws its own, so the check cannot compare. Take them out for this check. (`nn.Dropout` layers may "
                "stay: the check switches them off.)")
    alone = torch.cat([losses(X[i:i + 1], y[i:i + 1]) for i in range(len(X))])
    if distance([alone.detach()], [each.detach()]) > 1e-9:
        not_yet("the loss of an example changes if the other examples are taken out of the minibatch. So something in "
                "the network or in `loss` looks at several examples at once, and does not split: see the chapter "
                f'"{SPLITS}".')
    optimizer = call(path, "running `make_optimizer`", module.make_optimizer, list(copy.deepcopy(net).parameters()))
    if not isinstance(optimizer, torch.optim.Optimizer):
        not_yet(f"`make_optimizer` should return an optimizer of `torch.optim`, but it returns {kind(optimizer)}.")


def kind(x: Any) -> str:
    """What a value is, in a sentence."""
    if x is None:
        return "nothing (is there a `return`?)"
    name = type(x).__name__
    return f"a {name} of {len(x)}" if isinstance(x, (tuple, list)) else f"an object of type {name}"


# the single device, and what may go wrong on several


def single(module: Any, net: nn.Module, minibatches: Sequence[tuple[Tensor, Tensor]], keep: str = "") -> list[Tensor]:
    """The parameters after one step for each minibatch on a single device.

    With `keep`, gradients are not zeroed; they are divided "before" they are added to the earlier ones, or "after".
    """
    net = copy.deepcopy(net)
    optimizer = module.make_optimizer(net.parameters())
    for X, y in minibatches:
        if not keep:
            optimizer.zero_grad()
        total = module.loss(net(X), y).sum()
        (total if keep == "after" else total / len(X)).backward()
        for p in net.parameters():
            if keep == "after" and p.grad is not None:
                p.grad /= len(X)
        optimizer.step()
    return [p.detach() for p in net.parameters()]


OWN, LESS = "each device has stepped with a gradient of its own shard", "Sum the loss over each shard"
ONCE = "divide once, by the size of the whole minibatch"
# what each device divides by or does, given the sums of all shards, their sizes and the rank; and what to say
MISTAKES: list[tuple[str, Callable[[list[Tensor], list[int], int], Any]]] = [
    (f"the step is that of a mean of means: the loss is averaged over each shard, and then over the devices, so an "
     f"example in a smaller shard counts for more. {LESS}, add up the gradients, and {ONCE}",
     lambda g, n, r: sum(x / m for x, m in zip(g, n)) / len(n)),
    (f"the step is about {{k}} times what it should be: the loss is averaged over each shard, and these means are "
     f"added up. {LESS}, add up the gradients, and {ONCE}",
     lambda g, n, r: sum(x / m for x, m in zip(g, n))),
    (f"the gradients are added up, but not divided: the step is that of the sum over {{B}} examples. After the "
     f"allreduce, {ONCE}, `len(X)`", lambda g, n, r: sum(g)),
    ("the gradients are added up, but each device divides by the size of its own shard, so the devices take different "
     "steps. Every device must divide by the size of the whole minibatch, `len(X)`", lambda g, n, r: sum(g) / n[r]),
    ("the gradients are added up and divided by the size of the first shard, not by the size of the whole minibatch",
     lambda g, n, r: sum(g) / n[0]),
    ("the gradients are divided by the size of the last shard, not by the size of the whole minibatch. (After a loop "
     "over the shards, its variable still holds the last one.)",
     lambda g, n, r: sum(g) / n[-1]),
    ("the step is 1/{k} of what it should be: the gradients are divided by the size of the minibatch, and by the "
     "number of devices as well. The sum over all devices is that of the whole minibatch already: divide once",
     lambda g, n, r: sum(g) / sum(n) / len(n)),
    (f"the gradients are divided by the number of devices, and not by the size of the minibatch. {LESS}, add up the "
     f"gradients, and {ONCE}, `len(X)`", lambda g, n, r: sum(g) / len(n)),
    (f"{OWN}, and never saw the others: an allreduce is missing. Before any device steps, call `allreduce` for each "
     "parameter, with the list of its gradients on all devices", lambda g, n, r: g[r] / n[r]),
    (f"{OWN}, divided by the size of the whole minibatch, but the sum over the devices is missing. Before any device "
     "steps, call `allreduce` for each parameter, with the list of its gradients on all devices",
     lambda g, n, r: g[r] / sum(n)),
    (f"{OWN}, neither added up nor divided. Before any device steps, call `allreduce` for each parameter, and {ONCE}",
     lambda g, n, r: g[r]),
    ("only replica 0 has stepped: the other devices still have the parameters of the step before. Each device needs an "
     "optimizer of its own, `make_optimizer(replica.parameters())`, and each must call `step()`",
     lambda g, n, r: sum(g) / sum(n) if r == 0 else None),
    ("replica 0 is right, but the other devices have stepped with the gradient of their own shard: the total has not "
     "reached them. `allreduce` writes it into every tensor of the list that it is given: give it the gradients "
     "themselves, the `p.grad` of all devices, and not copies of them",
     lambda g, n, r: sum(g) / sum(n) if r == 0 else g[r] / sum(n)),
    ("only the gradient of the last shard was used", lambda g, n, r: g[-1] / sum(n)),
    ("only the gradient of the first shard was used, on all devices", lambda g, n, r: g[0] / sum(n)),
    ("only the gradient of the first shard was used, on all devices", lambda g, n, r: g[0] / n[0]),
]


def with_mistake(module: Any, net: nn.Module, minibatches: Sequence[tuple[Tensor, Tensor]], k: int,
                 gradient: Callable, cut: Callable = Tensor.tensor_split) -> list[list[Tensor]]:
    """The parameters of k replicas that step with what `gradient` makes of the sums over the shards."""
    replicas = [copy.deepcopy(net) for _ in range(k)]
    optimizers = [module.make_optimizer(replica.parameters()) for replica in replicas]
    for X, y in minibatches:
        sums, sizes = [], []
        for replica, A, b in zip(replicas, cut(X, k), cut(y, k)):
            replica.zero_grad()
            module.loss(replica(A), b).sum().backward()
            sums.append([p.grad for p in replica.parameters()])
            sizes.append(len(A))
        steps = [[None if g[0] is None else gradient(list(g), sizes, rank) for g in zip(*sums)] for rank in range(k)]
        for replica, optimizer, grads in zip(replicas, optimizers, steps):
            for p, grad in zip(replica.parameters(), grads):
                p.grad = grad
            optimizer.step()
    return [[p.detach() for p in replica.parameters()] for replica in replicas]


def apart(ours: Sequence[Tensor], theirs: Sequence[Tensor], start: Sequence[Tensor]) -> float:
    """The largest distance of two tensors, relative to the tensor or to the step of all of them, whichever is longer:
    where a gradient is zero, but for rounding, it does not count that all of it is rounding."""
    step = math.hypot(*(float((q - p).norm()) for p, q in zip(start, theirs)))
    gaps = [float((p - q).norm()) / max(float(q.norm()), step, 1e-300) for p, q in zip(ours, theirs)]
    return max(gap if gap < math.inf else math.inf for gap in gaps)


def gap(found: Sequence[Sequence[Tensor]], guess: Sequence[Sequence[Tensor]], start: Sequence[Tensor]) -> float:
    """How far the replicas are from those of a mistake, relative to their steps; the worst replica counts."""
    worst = 0.0
    for ours, theirs in zip(found, guess):
        step = math.hypot(*(float((q - p).norm()) for p, q in zip(start, theirs)))
        off = math.hypot(*(float((p - q).norm()) for p, q in zip(ours, theirs)))
        worst = max(worst, off / step if step else math.inf if off else 0.0)
    return worst if worst < math.inf else math.inf


# the comparison


def run(module: Any, path: Path, net: nn.Module, minibatches: list, k: int) -> list[list[Tensor]]:
    """The parameters of her replicas, on the CPU."""
    devices = f"{k} device{'s' * (k > 1)}"
    replicas = call(path, f"running `train` on {devices}", module.train, k, copy.deepcopy(net), minibatches)
    if isinstance(replicas, tuple) and replicas and isinstance(replicas[0], (list, nn.ModuleList)):
        not_yet(f"`train` returns a tuple of {len(replicas)}. It should return the list of replicas alone.")
    if not isinstance(replicas, (list, tuple, nn.ModuleList)) or not all(isinstance(r, nn.Module) for r in replicas):
        not_yet(f"`train` should return the list of its replicas, one network for each device, but it returns "
                f"{kind(replicas)}.")
    if len(replicas) != k:
        not_yet(f"on {devices}, `train` returns {len(replicas)} network{'s' * (len(replicas) != 1)}. It should return "
                "one for each device: the check looks at all of them.")
    names = [name for name, _ in net.named_parameters()]
    every = [list(replica.parameters()) for replica in replicas]
    for rank, params in enumerate(every):
        if [p.shape for p in params] != [p.shape for p in net.parameters()]:
            not_yet(f"replica {rank} does not have the parameters of the network that `train` was given.")
    for a, b in overlaps([p.detach() for params in every for p in params]):
        (rank, i), (other, _) = divmod(a, len(names)), divmod(b, len(names))
        if rank != other:
            not_yet(f"replicas {rank} and {other} share the memory of `{names[i]}`: they are one network with two "
                    "names, so every device's step moves both. On a CPU, `net.to(device)` copies nothing, and returns "
                    f'`net` itself. Make real copies: `copy.deepcopy(net).to(device)`. The chapter "{SHARES}" shows '
                    "what happens otherwise.")
    return [[p.detach().cpu() for p in params] for params in every]


def words_for(sizes: Sequence[int], k: int) -> str:
    """How a minibatch is cut, in a sentence."""
    if k == 1:
        return f"on a single device, for a minibatch of {sizes[0]} examples"
    shards = [len(shard) for shard in torch.arange(sizes[0]).tensor_split(k)]
    return f"for shards of {', '.join(map(str, shards[:-1]))} and {shards[-1]} examples"


def compare(module: Any, path: Path, net: nn.Module, minibatches: list, k: int, tolerance: float) -> None:
    """Stop unless k of her devices end with the parameters of a single device."""
    start = [p.detach().clone() for p in net.parameters()]
    first, devices = minibatches[:1], "on a single device" if k == 1 else f"on {k} devices"
    expected = single(module, net, first)
    if distance(start, expected) == 0:
        not_yet("on a single device, one step with `make_optimizer` moves no parameter. Is the learning rate zero?")

    def is_right(found: list[list[Tensor]], expected: list[Tensor]) -> bool:
        return all(apart(params, expected, start) <= tolerance and gap([params], [expected], start) <= 1e-8
                   for params in found)

    def as_if(found: list[list[Tensor]], *guesses: list[list[Tensor]]) -> bool:
        return min(gap(found, guess, start) for guess in guesses) < NEAR

    found = run(module, path, net, first, k)
    if not is_right(found, expected):
        not_yet(f"{words_for(SIZES, k)}, {explain(module, net, first, k, found) or numbers(net, found, expected, k)}")
    found = run(module, path, net, minibatches, k)
    if is_right(found, single(module, net, minibatches)):
        return
    if as_if(found, [single(module, net, minibatches[:-1])] * k):
        not_yet(f"{devices}, the last minibatch is dropped: it has {SIZES[-1]} examples, and the others have "
                f"{SIZES[0]}. A smaller minibatch can be cut like any other, and its gradient is divided by its own "
                "size, `len(X)`.")
    if as_if(found, *([single(module, net, minibatches, keep)] * k for keep in ("before", "after"))):
        not_yet(f"{devices}, the first step is right, but the second one uses the gradient of the first step again: "
                "`backward` adds to what is there. Call `zero_grad()` before each backward pass.")
    if as_if(found, with_mistake(module, net, minibatches, k, lambda g, n, r: sum(g) / SIZES[0])):
        not_yet(f"{devices}, the last minibatch has {SIZES[-1]} examples, but its gradient is divided by {SIZES[0]}, "
                "like the gradients of the others, so this step is too small. Divide by `len(X)`.")
    if what := explain(module, net, minibatches, k, found):
        not_yet(f"{devices}, {what}")
    if not is_right(run(module, path, net, minibatches[:2], k), single(module, net, minibatches[:2])):
        not_yet(f"{devices}, the first step is right, but the second one is not. What is left over from the first? "
                "Look at `zero_grad()`. And make the optimizers once, before the loop: new ones have no momentum.")
    not_yet(f"{devices}, the steps for the minibatches of {SIZES[0]} examples are right, but the step for the last "
            f"one, of {SIZES[-1]} examples, is not. Where does the size of a minibatch enter your `train`?")


def explain(module: Any, net: nn.Module, minibatches: list, k: int, found: list[list[Tensor]]) -> str:
    """The known mistake that leads to these parameters; empty if none does."""
    size, start = len(minibatches[0][0]), [p.detach() for p in net.parameters()]
    if gap(found, [start] * k, start) == 0:
        return ("no parameter moves. Make each optimizer for the parameters of its replica, "
                "`make_optimizer(replica.parameters())`, call `step()`, and return the replicas.")

    def rest_left_out(x: Tensor, k: int) -> list[Tensor]:
        return list(x[:len(x) // k * k].split(len(x) // k))

    guesses = []
    for words, gradient in MISTAKES if k > 1 else [one for one in MISTAKES if "not divided" in one[0]]:
        guesses.append((words.format(k=k, B=size), with_mistake(module, net, minibatches, k, gradient)))
    if k > 1:
        words = (f"the examples that are left over are not used: {size} is not a multiple of {k}, and only "
                 f"{size // k * k} of {size} examples reach a device. Cut the minibatch with `split_batch`")
        for by in (lambda g, n, r: sum(g) / sum(n), lambda g, n, r: sum(g) / size):
            guesses.append((words, with_mistake(module, net, minibatches, k, by, rest_left_out)))
    gaps = [gap(found, guess, start) for _, guess in guesses]
    words = guesses[gaps.index(min(gaps))][0]
    return words + "." * (words[-1] != ")") if min(gaps) < NEAR else ""


def numbers(net: nn.Module, found: list[list[Tensor]], expected: list[Tensor], k: int) -> str:
    """How far the parameters are from those of a single device, for a mistake that is not known."""
    start = [p.detach() for p in net.parameters()]
    steps = [torch.cat([(p - a).flatten() for a, p in zip(start, params)]) for params in [*found, expected]]
    right = steps.pop()
    factors = {round(float(step @ right / (right @ right)), 6) for step in steps}
    [factor] = factors if len(factors) == 1 else [math.nan]
    if all((step - factor * right).norm() <= NEAR * right.norm() for step in steps):
        return (f"the step is {factor:.4g} times what it should be. Does `train` make its optimizers with "
                "`make_optimizer`? And where is the gradient divided?")
    off = [float((step - right).norm() / right.norm()) for step in steps]
    worst, fine = max(range(k), key=off.__getitem__), [rank for rank in range(k) if off[rank] < NEAR]
    others = f" Replica {', '.join(map(str, fine))} is right." if fine else ""
    return f"replica {worst} takes a different step: it is off by {off[worst]:.0%} of the right step.{others}"


def check_training(path: Path) -> None:
    module = load(path)
    minibatches, net = examples_of(module, path), network_of(module, path)
    look_at_parts(module, path, net, minibatches)
    print("the network, the data, the loss and the optimizer: right", flush=True)
    if not hasattr(module, "train"):
        not_yet(f"{path.name} has no function `train`. {NAMES['train']}.")
    optimizer = module.make_optimizer(list(copy.deepcopy(net).parameters()))
    # an optimizer that divides by the gradient's size, as Adam does, enlarges what is only rounding
    tolerance = 1e-12 if type(optimizer) is torch.optim.SGD else 1e-9
    for k in (1, 2, 3):
        compare(module, path, net, minibatches, k, tolerance)
        print(f"{k} device{'s' * (k > 1)}: right", flush=True)
    on = ", ".join(map(str, try_devices(3)))
    print(f"Right. In float64, 1, 2 and 3 devices ({on}) take the steps of a single device, to {tolerance:g}, on every "
          f"replica, for minibatches of {', '.join(map(str, SIZES[:-1]))} and {SIZES[-1]} examples.")


# checkpoints


def parameters_of(path: Path) -> dict[str, Tensor]:
    """The parameters and buffers in a checkpoint: its entry "net", or all of it."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        not_yet(f"{path.name} cannot be read as a checkpoint: {type(error).__name__}: {first_line(error)}")
    saved = saved["net"] if isinstance(saved, dict) and isinstance(saved.get("net"), dict) else saved
    if not isinstance(saved, dict) or not saved or not all(isinstance(x, Tensor) for x in saved.values()):
        not_yet(f"{path.name} does not contain a network. Save a dict whose entry \"net\" is the network's "
                "`state_dict()`.")
    return saved


def check_checkpoints(paths: Sequence[Path]) -> None:
    first, *others = paths
    expected, is_same = parameters_of(first), True
    for path in others:
        found = parameters_of(path)
        if set(found) != set(expected) or any(found[name].shape != expected[name].shape for name in expected):
            odd = sorted(set(found) ^ set(expected)) or [n for n in expected if found[n].shape != expected[n].shape]
            not_yet(f"{first.name} and {path.name} are checkpoints of different networks: `{odd[0]}` is not in both, "
                    "or has a different shape.")
        far = {name: distance([found[name]], [expected[name]]) for name in expected}
        worst = max(far, key=far.__getitem__)
        in_double = all(x.dtype == torch.float64 for x in expected.values() if x.is_floating_point())
        pair = f"{first.name} and {path.name}"
        if far[worst] == 0:
            print(f"{pair}: the same values, to the last bit.")
        elif far[worst] < 1e-9:
            print(f"{pair}: they agree to {far[worst]:.0e}, which is rounding.")
        else:
            is_same = False
            hint = ("" if in_double else " The parameters are float32: in float64, you would see whether it is only "
                    "rounding.")
            print(f"{pair}: not the same training. The largest distance is {far[worst]:.2g}, in `{worst}`.{hint}")
    sys.exit(0 if is_same else 1)


def main(words: Sequence[str]) -> None:
    paths = [Path(word).resolve() for word in words]
    if not paths or (len(paths) == 1) != (paths[0].suffix == ".py"):
        sys.exit(inspect.cleandoc(__doc__ or ""))
    for path, word in zip(paths, words):
        if not path.is_file():
            sys.exit(f"There is no file {word} in {os.getcwd()}.")
    check_training(paths[0]) if len(paths) == 1 else check_checkpoints(paths)


if __name__ == "__main__":
    main(sys.argv[1:])
