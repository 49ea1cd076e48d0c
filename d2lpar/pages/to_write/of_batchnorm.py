"""The checks of the functions of `d2lpar.batchnorm` that readers write. Ranks are threads, as in `DataParallel`."""

from contextlib import contextmanager
from functools import wraps
from unittest import mock

import torch

from d2lpar import batchnorm
from d2lpar.devices import run_on_devices
from d2lpar.pages.differences import Difference, call, compare, home, same
from d2lpar.pages.elsewhere import place, pretending
from d2lpar.pages.to_write.of_scratch import PRETENDED, TWO


def noise(*shape, seed=0):
    """Values of a normal distribution, in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@contextmanager
def named():
    """Says "the mean" instead of "the result[1]"."""
    try:
        yield
    except Difference as difference:
        text = str(difference)
        for i, name in enumerate(("the count", "the mean", "the sum of the squared distances")):
            text = text.replace(f"the result[{i}]", name)
        raise Difference(text) from None


@named()
def check_moments(yours):
    for words, x in (
            ("for one channel with the values 2 and 7", torch.tensor([[2.0], [7.0]])),
            ("for two channels with the values 1, 5 and 20, 40", torch.tensor([[1.0, 20.0], [5.0, 40.0]])),
            ("for 2 images with 3 channels of 2 by 2 pixels", noise(2, 3, 2, 2)),
            ("for 3 examples with 2 channels of 4 values", noise(3, 2, 4)),
            ("for a shard without images", noise(0, 2, 3, 3)),
            ("in float32, for 50 values around 10,000 with a variance of 1", (10_000 + noise(50, 1)).float())):
        compare(yours, words, lambda x=x: (x.clone(),))
    compare(yours, PRETENDED, lambda: (place(noise(4, 2, 3), TWO[1]),))


@named()
def check_combine_moments(yours):
    def shards(*sizes):
        parts = noise(sum(sizes), 2).split(list(sizes))
        return tuple(map(list, zip(*[batchnorm.moments(part + i) for i, part in enumerate(parts)])))

    def two(counts, means, squares):
        return [counts, [torch.tensor([m]) for m in means], [torch.tensor([s]) for s in squares]]

    compare(yours, "for two shards of 1 value each, the values 2 and 6", lambda: two([1, 1], [2.0, 6.0], [0.0, 0.0]))
    compare(yours, "for two shards with the values 1, 3 and 5, 7", lambda: two([2, 2], [2.0, 6.0], [2.0, 2.0]))
    compare(yours, "for shards with the values 1, 3 and 8", lambda: two([2, 1], [2.0, 8.0], [2.0, 0.0]))
    compare(yours, "for a single shard", lambda: shards(4))
    compare(yours, "for shards of 3, 0 and 2 images with 2 channels", lambda: shards(3, 0, 2))
    compare(yours, "for shards of 0 and 5 images with 2 channels", lambda: shards(0, 5))


def on_threads(yours, words, make, *, exchanges=1):
    """Compare what each rank gets from `yours(*make()[rank])` with what it gets from the package's own function."""
    counts = []

    def run(fn):
        args, asked = make(), []

        def counted(x):
            asked.append(1)
            return here(x)

        def on_one(given):
            with pretending(*given):
                return fn(*given)

        @wraps(fn)
        def on_all():
            return run_on_devices(on_one, args)

        here = batchnorm.all_gather_here
        with mock.patch.object(batchnorm, "all_gather_here", counted):
            try:
                found = call(on_all, words)
            except Difference as difference:
                raise Difference(str(difference).replace("your function raises _Absent", "an exchange fails")) from None
        counts.append(len(asked) / len(args))
        return found

    expected, found = run(home(yours.__name__)), run(yours)
    if all(x is None for x in found):
        raise Difference(f"{words}, your function returns nothing. Is there a `return`?")
    for rank, (ours, theirs) in enumerate(zip(found, expected)):
        same("the result", ours, theirs, f"{words}, on rank {rank}" if len(found) > 1 else words)
    if len(found) > 1 and counts[1] > exchanges:
        raise Difference(f"{words}, each rank calls `all_gather_vectors` {counts[1]:g} times. One exchange is enough: put "
                         "everything that a rank has to send into one vector.")


CUTS = (("for two ranks with 2 examples each", (2, 2)), ("for two ranks with 3 examples and 1", (3, 1)),
        ("for three ranks with 2, 0 and 3 examples", (2, 0, 3)), ("for one rank alone", (4,)))


@named()
def check_moments_of_all(yours):
    four = [torch.tensor([[2.0], [6.0]]), torch.tensor([[7.0], [9.0]])]
    on_threads(yours, "for two ranks with the values 2, 6 and 7, 9", lambda: [(x.clone(), 2) for x in four])
    for words, sizes in CUTS:
        on_threads(yours, f"{words}, in 2 channels of 3 values", lambda sizes=sizes: [
            (x.clone(), len(sizes)) for x in noise(sum(sizes), 2, 3).split(list(sizes))])
    on_threads(yours, PRETENDED, lambda: [(place(x, device), 2) for x, device in zip(noise(4, 2).split([3, 1]), TWO)])


def check_gradient_of_input(yours):
    def four(sizes):
        g, y = torch.tensor([[1.0], [0.0], [0.0], [0.0]]), torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
        return [(a, b, torch.tensor([2.0]), 4, len(sizes)) for a, b in zip(g.split(sizes), y.split(sizes))]

    def scene(sizes, channels, pixels):
        n = sum(sizes)
        grad, x = noise(n, channels, *pixels), noise(n, channels, *pixels, seed=1)
        dims = [0, *range(2, x.dim())]
        factor = x.var(dims, correction=0).rsqrt()
        y = (x - x.mean(dims, keepdim=True)) * factor.view(1, -1, *[1] * len(pixels))
        return [(a, b, factor.clone(), n * len(x[0, 0].reshape(-1)), len(sizes))
                for a, b in zip(grad.split(list(sizes)), y.split(list(sizes)))]

    on_threads(yours, "for one rank alone with g = 1, 0, 0, 0, y = 1, -1, 1, -1 and f = 2", lambda: four([4]))
    on_threads(yours, "for two ranks with g = 1, 0 and 0, 0, y = 1, -1 and 1, -1, and f = 2", lambda: four([2, 2]))
    for words, sizes in CUTS:
        on_threads(yours, f"{words}, in 3 channels of 2 values", lambda sizes=sizes: scene(sizes, 3, (2,)))
    on_threads(yours, "for two ranks with 2 images each, 3 channels of 2 by 2 pixels",
               lambda: scene((2, 2), 3, (2, 2)))
    on_threads(yours, PRETENDED, lambda: [
        (*[place(x, device) for x in given[:3]], *given[3:]) for given, device in zip(scene((3, 1), 2, ()), TWO)])
