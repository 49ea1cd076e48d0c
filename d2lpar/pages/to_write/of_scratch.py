"""The checks of the functions of `d2lpar.scratch` that readers write."""

import inspect
from contextlib import redirect_stdout
from io import StringIO
from threading import Barrier, BrokenBarrierError

import torch

from d2lpar.devices import try_devices
from d2lpar.models import lenet_params
from d2lpar.pages.differences import Difference, call, compare, same, shown
from d2lpar.pages.elsewhere import place
from d2lpar.scratch import get_params, one_worker

TWO = [torch.device("cuda", 0), torch.device("cuda", 1)]  # pretended: see elsewhere.py
PRETENDED = "with two GPUs (they are simulated)"


def images(n, seed=0):
    """n images of noise and their labels, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, 28, 28, generator=generator, dtype=torch.float64), torch.arange(n) * 7 % 10


def doubles(seed=0):
    """LeNet's parameters, none of them zero."""
    generator = torch.Generator().manual_seed(seed)
    return [p.double() + 0.1 * torch.rand(p.shape, generator=generator, dtype=torch.float64) for p in lenet_params()]


def check_distance(yours):
    nan = float("nan")
    for words, ours, theirs in (
            ("for (6, 8) and the reference (3, 4)", [[6.0, 8.0]], [[3.0, 4.0]]),
            ("for (3, 4) and the reference (6, 8)", [[3.0, 4.0]], [[6.0, 8.0]]),
            ("if the first of two tensors is further away", [[1.0, 2.0], [5.0]], [[2.0, 2.0], [5.1]]),
            ("if the second of two tensors is further away", [[5.0], [1.0, 2.0]], [[5.1], [2.0, 2.0]]),
            ("for two tensors that are both zero", [[0.0, 0.0]], [[0.0, 0.0]]),
            ("if ours is NaN", [[nan, 1.0]], [[1.0, 1.0]]),
            ("if the reference is NaN", [[1.0, 1.0]], [[nan, 1.0]]),
            ("if only the first of three tensors is NaN", [[nan], [2.0], [3.0]], [[1.0], [2.0], [3.0]]),
            ("if only the second of two tensors is NaN", [[1.0], [nan]], [[2.0], [1.0]]),
            ("if the reference is zero and ours is not", [[1.0]], [[0.0]])):
        compare(yours, words, lambda pair=(ours, theirs): tuple([*map(torch.tensor, side)] for side in pair))
    compare(yours, "in float32, for values that differ in the last digits only",
            lambda: ([torch.tensor([1e-30, 3e-30])], [torch.tensor([1e-30, 1e-30])]))
    compare(yours, "in float32, for 100,000,000 and the reference 1",
            lambda: ([torch.tensor([1e8])], [torch.tensor([1.0])]))
    one, two = [torch.tensor([2.0, 2.0])], [torch.ones(2), torch.ones(2)]
    for words, pair in (("if a tensor is missing", (one, two)), ("if the reference lacks a tensor", (two, one))):
        try:
            found = yours(*pair)
        except Exception:
            continue
        raise Difference(f"{words}, your function returns {shown(found)}, but it should raise an error: otherwise nobody "
                         "notices. (`zip` has an option for this.)")


def check_one_worker(yours):
    for n in (1, 5):
        words, start = f"for {n} image{'s' * (n > 1)}", [p.requires_grad_() for p in doubles()]
        look_at_update(start, call(yours, words, *images(n), start, 0.25), one_worker(*images(n), start, 0.25), words)
        compare(yours, words, lambda n=n: (*images(n), [p.requires_grad_() for p in doubles()], 0.25))


def look_at_update(start, ours, theirs, words):
    """How far the parameters have moved, so that a factor shows."""
    if isinstance(ours, (list, tuple)) and [p.shape for p in start] == [getattr(p, "shape", None) for p in ours]:
        if all(torch.equal(p, q) for p, q in zip(doubles(), ours)):
            raise Difference(f"{words}, no parameter has moved.")
        for i, (p, a, b) in enumerate(zip(doubles(), ours, theirs)):
            same(f"the step of parameter {i}", (a - p).detach(), (b - p).detach(), words)


def check_get_params(yours):
    def plain():
        return [torch.tensor([1.0, 2.0]), torch.tensor([[3.0], [4.0]])], torch.device("cpu")

    compare(yours, "for two tensors on the CPU", plain)
    compare(yours, "for tensors that require a gradient themselves",
            lambda: ([x.requires_grad_() for x in plain()[0]], torch.device("cpu")))
    compare(yours, PRETENDED, lambda: ([place(x, "cpu") for x in plain()[0]], TWO[1]))


def check_split_batch(yours):
    for n, k in ((4, 2), (5, 2), (7, 3), (2, 4), (1, 3), (6, 1), (13, 5)):
        words = f"for {n} example{'s' * (n > 1)} on {k} device{'s' * (k > 1)}"
        X, y = torch.arange(3.0 * n).view(n, 3), torch.arange(n)
        look_at_shards(call(yours, words, X, y, try_devices(k)), X, y, k, words)
    X, y = torch.arange(9.0).view(3, 3), torch.arange(3)
    placed = place(X, "cpu"), place(y, "cpu")
    for shards in call(yours, PRETENDED, *placed, TWO):
        for rank, shard in enumerate(shards):
            if shard.device != TWO[rank]:
                raise Difference(f"{PRETENDED}, the shard of rank {rank} is on the device {shard.device}, "
                                 f"but should be on {TWO[rank]}.")


def look_at_shards(found, X, y, k, words):
    """The shards differ by at most one in size, and follow the order of the examples."""
    if found is None:
        raise Difference(f"{words}, your function returns nothing. Is there a `return`?")
    if not (isinstance(found, (list, tuple)) and [isinstance(part, (list, tuple)) for part in found] == [True, True]
            and all(isinstance(x, torch.Tensor) for part in found for x in part)):
        raise Difference(f"{words}, your function should return two lists of tensors: the shards of X, and those of y.")
    if any(x.shape[1:] != whole.shape[1:] for part, whole in zip(found, (X, y)) for x in part):
        raise Difference(f"{words}, the first list should hold the shards of X and the second those of y. In yours, "
                         f"the tensors have the shapes {[[tuple(x.shape) for x in part] for part in found]}.")
    sizes = [[len(x) for x in part] for part in found]
    for name, part, whole, size in zip("Xy", found, (X, y), sizes):
        if len(part) != k:
            raise Difference(f"{words}, there are {len(part)} shards of {name}, but there should be {k}.")
        if sum(size) != len(whole):
            raise Difference(f"{words}, the shards of {name} hold {sum(size)} of the {len(whole)} examples: {size}.")
        if not torch.equal(torch.cat(list(part)), whole):
            raise Difference(f"{words}, the shards of {name}, one after the other, are not {name}.")
    if sizes[0] != sizes[1]:
        raise Difference(f"{words}, X is cut into {sizes[0]} and y into {sizes[1]}: a label must be where its image "
                         "is.")
    if max(sizes[0]) - min(sizes[0]) > 1:
        raise Difference(f"{words}, the shards have {sizes[0]} examples: sizes should differ by at most one.")
    if sizes[0] != sorted(sizes[0], reverse=True):
        raise Difference(f"{words}, the shards have {sizes[0]} examples. That is a fair cut, but the larger shards "
                         "should come first, as the docstring says: the numbers on this page depend on it.")


def check_allreduce(yours):
    for held in ((2, 5), (-1, 6, 4), (3, 0.5, 7, 1), (4,)):
        compare(yours, f"if the ranks hold {', '.join(map(str, held))}",
                lambda held=held: ([torch.tensor([float(x)]) for x in held],))
    compare(yours, "for tensors with two rows",
            lambda: ([torch.tensor([[1.0, 2.0], [3.0, 4.0]]) * (r + 1) for r in range(3)],))
    compare(yours, "if rank 1 holds NaN", lambda: ([torch.tensor([x]) for x in (1.0, float("nan"))],))
    compare(yours, PRETENDED, lambda: ([place(torch.tensor([x]), d) for x, d in zip((2.0, 5.0), TWO)],))


def check_sgd(yours):
    def one(value, grad, lr, n):
        p = torch.tensor(value, requires_grad=True)
        p.grad = torch.tensor(grad)
        return [p], lr, n

    compare(yours, "for the parameter 2 with the gradient 3, a learning rate of 1 and one example",
            lambda: one([2.0], [3.0], 1.0, 1))
    compare(yours, "for the parameter 2 with the gradient 6, a learning rate of 0.5 and four examples",
            lambda: one([2.0], [6.0], 0.5, 4))
    compare(yours, "for two parameters", lambda: (
        [*one([1.0, 2.0], [8.0, -8.0], 0.5, 4)[0], *one([[3.0]], [[-4.0]], 0.5, 4)[0]], 0.5, 4))


def steps(yours, words, n, k, times=1):
    """After so many steps, each replica is compared with a single device."""
    devices, start = try_devices(k), doubles()
    replicas = [get_params(start, device) for device in devices]
    expected = get_params(start, devices[0])
    for step in range(times):
        X, y = images(n, seed=step)
        expected = [p.requires_grad_() for p in one_worker(X, y, expected, 0.25)]
        call(yours, words, X, y, replicas, devices, 0.25)
    for rank, replica in enumerate(replicas):
        look_at_its_own(yours, words, start, replica, n, k, rank, times)
        look_at_update(start, replica, expected, f"{words}, on rank {rank}")


def look_at_its_own(yours, words, start, replica, n, k, rank, times):
    """Whether a replica has taken the step of its own shard alone, which is the most frequent mistake."""
    X, y = images(n)
    shard = X.tensor_split(k)[rank], y.tensor_split(k)[rank]
    if times == 1 < k and len(shard[0]):
        alone = one_worker(*shard, get_params(start, X.device), 0.25 * len(shard[0]) / n)
        if all(torch.allclose(p, q, rtol=1e-9) for p, q in zip(replica, alone)):
            raise Difference(f"{words}, rank {rank} has taken the step of its own shard alone. Were the gradients added "
                             "up before the step?")


def look_at_steps(yours):
    """The step of one device, on every replica."""
    steps(yours, "for 4 images on one device", 4, 1)
    steps(yours, "for shards of 2 and 2 images", 4, 2)
    steps(yours, "for shards of 2, 2 and 1 images", 5, 3)
    steps(yours, "for 2 images on 3 devices", 2, 3)
    steps(yours, "after two steps on shards of 2 and 1 images", 3, 2, times=2)


def check_train_batch(yours):
    look_at_steps(yours)

    replicas = [[place(p, device).requires_grad_() for p in doubles()] for device in TWO]
    X, y = (place(x, "cpu") for x in images(3))
    call(yours, PRETENDED, X, y, replicas, TWO, 0.25)


def check_shard_backward(yours):
    def make(n):
        return *images(n), [p.requires_grad_() for p in doubles()]

    compare(yours, "for a shard of 3 images", lambda: make(3))
    compare(yours, "for a shard without images", lambda: make(0))

    def again():
        X, y, params = make(2)
        for p in params:
            p.grad = torch.ones_like(p)
        return X, y, params

    compare(yours, "if there are gradients already, to which the new ones are added", again)


def check_train_batch_threads(yours):
    look_at_steps(yours)
    meeting, names = Barrier(2, timeout=2), inspect.unwrap(yours).__globals__
    own, met = names["shard_backward"], []

    def meet(*shard):
        try:
            meeting.wait()
        except BrokenBarrierError:
            met.append(False)
        else:
            met.append(True)
        own(*shard)

    names["shard_backward"] = meet
    try:
        steps(yours, "for shards of 2 and 2 images", 4, 2)
    finally:
        names["shard_backward"] = own
    if met != [True, True]:
        raise Difference("for shards of 2 and 2 images, the result is right, but "
                         + ("your function does not hand `shard_backward` to `run_on_devices`." if not met else
                            "the second shard is started only when the first is done. They should be computed at "
                            "once."))


def check_train(yours):
    """A training run of two minibatches, with a step that only notes how it is called."""
    calls = []

    def step(X, y, replicas, devices, lr):
        calls.append((len(X), [len(r) for r in replicas], len(devices), lr))
        with torch.no_grad():
            for replica in replicas:
                replica[1] += 1

    def run(words, k, num_epochs, step):
        start = lenet_params(seed=3)
        with redirect_stdout(StringIO()):
            found = call(yours, words, k, 64, 0.5, num_epochs, start, 0, 96, step)
        if not (isinstance(found, tuple) and len(found) == 2):
            raise Difference(f"{words}, your function should return the replicas and the history.")
        if not torch.equal(start[1], lenet_params(seed=3)[1]):
            raise Difference(f"{words}, the run changes the parameters that it starts from: the replicas should be copies.")
        return start, found[0]

    words = "for 2 devices and 96 images in minibatches of 64"
    start, replicas = run(words, 2, 1, step)
    if calls != [(64, [8, 8], 2, 0.5), (32, [8, 8], 2, 0.5)]:
        how = (f", first with {calls[0][0]} images, replicas of {calls[0][1]} tensors, {calls[0][2]} devices and lr = "
               f"{calls[0][3]}." if calls else ".")
        raise Difference(f"{words}, we passed a function of our own as `step`. Your function should call it twice, with 64 "
                         "and with 32 images, two replicas of eight tensors, two devices and lr = 0.5. It calls it "
                         f"{len(calls)} times{how}")
    if replicas[0][1].data_ptr() == replicas[1][1].data_ptr():
        raise Difference(f"{words}, both replicas are the same tensors: each device needs copies of its own.")
    for rank, replica in enumerate(replicas):
        same("b1", replica[1].detach(), start[1] + 2,
             f"{words} and a step that adds 1 to b1 of each replica, on rank {rank}")
        same("W4", replica[6].detach(), start[6], f"{words} and `params` of ours, on rank {rank}")
    words = "for one device and two epochs"
    start, replicas = run(words, 1, 2, step)
    same("b1", replicas[0][1].detach(), start[1] + 4, f"{words} of two minibatches, with a step that adds 1 to b1")
    words, names = "without a `step`, for one device", inspect.unwrap(yours).__globals__
    own, calls[:] = names["train_batch"], []
    names["train_batch"] = step
    try:
        run(words, 1, 1, None)
    finally:
        names["train_batch"] = own
    if len(calls) != 2:
        raise Difference(f"{words}, your function should call `train_batch` for each minibatch, which makes two calls. "
                         f"It makes {len(calls)}.")
