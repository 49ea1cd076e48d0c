"""Is it the length of a step that does harm, or its direction? Many kinds of step, each from the same network.

A network of the `study` is trained with the last step dropped. At the end of an epoch it takes one step, the accuracy
is measured, and the network is restored; then it takes a different step, of a different length or on different images.
So only the step differs. `python book/lab/branches.py FILE` takes all the steps, in twenty minutes.
"""

from __future__ import annotations

import copy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from d2lpar.checks import check_counts
from d2lpar.data import Batches, load_data_fashion_mnist
from d2lpar.devices import try_devices
from d2lpar.pages.settings import SMALL, Setting, Size
from study import accuracy_in_turn, add_gradients, main, rounded, run_and_record, starting_network

EPOCHS = (4, 5, 6, 7, 8, 9)
SIZES = (2, 4, 6, 8, 16, 32, 64, 128)
MANY = 1024


def stepped(net, X, y, lr, norm=None):
    """A copy of `net` after one step of SGD on the mean loss, and its gradient's norm.
    With `norm`, the gradient is first brought to that norm, in the same direction."""
    net = copy.deepcopy(net).train()
    grads = torch.autograd.grad(F.cross_entropy(net(X), y), list(net.parameters()))
    own = torch.cat([g.flatten() for g in grads]).norm().item()
    scale = 1 if norm is None else norm / own
    with torch.no_grad():
        for p, g in zip(net.parameters(), grads):
            p -= lr * scale * g
    return net, own


def branch(net: nn.Module, train_iter: Batches, test_iter: Batches, few: int, batch_size: int, lr: float, usual: float,
           generator: Generator) -> dict[str, Any]:
    """The accuracy of `net`, and after one step of each kind from it; `net` itself stays as it is.

    Three sets of training images are drawn: `few`, a batch, and 1,024 ("many"). `usual` is the norm that gradients of
    a batch have; a step's length is the learning rate times the norm of its gradient.

    Returns:
        The norms of the gradients (`norms`) and these accuracies: `before`; `few`, a full step on the few images;
        `damped`, the same by their share of a batch; `few_usual`, the same at the usual length; `batch`, as any step;
        `batch_long` and `many_long`, at the length of the full step on the few; `none`, a step of length 0 on the few,
        which moves the running statistics alone.
    """
    few_images, batch, many = (drawn(train_iter, n, generator, net) for n in (few, batch_size, MANY))
    ends = {"few": stepped(net, *few_images, lr)}
    norm = ends["few"][1]
    ends["damped"] = stepped(net, *few_images, lr * few / batch_size)
    ends["few_usual"] = stepped(net, *few_images, lr, usual)
    ends["batch"] = stepped(net, *batch, lr)
    ends["batch_long"] = stepped(net, *batch, lr, norm)
    ends["many_long"] = stepped(net, *many, lr, norm)
    ends["none"] = stepped(net, *few_images, 0)
    found: dict[str, Any] = {name: accuracy_in_turn([end], test_iter) for name, (end, _) in ends.items()}
    norms = {"usual": usual} | {name: ends[kind][1] for name, kind in (("few", "few"), ("batch", "batch"),
                                                                       ("many", "many_long"))}
    return {"before": accuracy_in_turn([net], test_iter), **found,
            "norms": {name: rounded(x) for name, x in norms.items()}}


def drawn(batches: Batches, n: int, generator: Generator, net: nn.Module) -> tuple[Tensor, Tensor]:
    """`n` of the images, X float32 from 0 to 1, and their labels, none of them twice, on the device of `net`."""
    chosen = torch.randperm(len(batches.labels), generator=generator)[:n]
    device = next(net.parameters()).device
    return (batches.images[chosen] / 255).to(device), batches.labels[chosen].to(device)


def run_branches(batch_size: int, lr: float, seed: int, size: Size = SMALL, epochs: tuple[int, ...] = EPOCHS,
                 num_draws: int = 2) -> dict[str, Any]:
    """Train one network on one device, its last steps dropped, and branch from it at the end of each of `epochs`.

    As many images are the few as the last, partial minibatch of an epoch has.

    Returns:
        `branches`: a dict for each epoch and draw, as from `branch`, with its "epoch"; and `squares`: for each epoch,
        the mean square of the norms of the gradients of 2, 4, ..., 128 images.
    """
    setting = Setting("dropped", "fresh", 1, batch_size, lr, size.num_train)
    cores = torch.get_num_threads()
    torch.set_num_threads(1)  # in channels_last, a few images on two threads can spoil memory (PyTorch 2.15)
    try:
        with redirect_stdout(StringIO()):
            train_iter, test_iter = load_data_fashion_mnist(batch_size, size.num_train, size.num_test, seed)
        test_iter.batch_size = 256
        generator = torch.Generator().manual_seed(100 + seed)
        [device] = try_devices(1)
        net = starting_network(setting, seed, size).to(device)
        trainer = torch.optim.SGD(net.parameters(), lr)
        found: dict[str, Any] = {"branches": [], "squares": []}
        for epoch in range(1, max(epochs) + 1):
            norms = []
            for X, y in train_iter:
                if len(y) == batch_size:
                    trainer.zero_grad()
                    norms.append(add_gradients([net], X.to(device), y.to(device), batch_size))
                    trainer.step()
            if epoch in epochs:
                few, usual = size.num_train % batch_size, median(norms)
                found["branches"] += [{"epoch": epoch} | branch(net, train_iter, test_iter, few, batch_size, lr, usual,
                                                                generator) for _ in range(num_draws)]
                found["squares"].append(mean_squares(net, train_iter, generator, num_draws))
        return found
    finally:
        torch.set_num_threads(cores)


def mean_squares(net: nn.Module, train_iter: Batches, generator: Generator, num_draws: int) -> dict[str, float]:
    """For each number of images in `SIZES`, the mean square of the norm of their gradient over so many draws."""
    return {str(n): rounded(mean(stepped(net, *drawn(train_iter, n, generator, net), 0)[1] ** 2
                                 for _ in range(num_draws))) for n in SIZES}


def run_all_branches(path: str | Path, num_seeds: int = 10, size: Size = SMALL) -> None:
    """Branch from networks of twice the batch at twice the rate, and add a record of each to `path`, as `run_study`.

    Raises:
        RecordError: as `run_missing`.
        DataError: if `size` needs the full set and that cannot be used.
    """
    check_counts(num_seeds=num_seeds)
    runs = [{"batch_size": 2 * size.batch_size, "lr": 0.2, "seed": seed} for seed in range(num_seeds)]
    run_and_record(path, "python book/lab/branches.py", runs, run, size)


def run(size: Size, batch_size: int, lr: float, seed: int) -> dict[str, Any]:
    """`run_branches` of what a line of the file holds."""
    return run_branches(batch_size, lr, seed, size)


if __name__ == "__main__":
    main(run_all_branches, "take single steps of many kinds from ten trained networks (twenty minutes on two cores)")
