"""The checks of the functions of `d2lpar.concise` that readers write."""

from contextlib import redirect_stdout
from io import StringIO
from typing import ClassVar

import torch
from torch import nn

from d2lpar.concise import evaluate_accuracy_gpus, train_data_parallel
from d2lpar.data_parallel import DataParallel
from d2lpar.devices import try_devices
from d2lpar.pages.differences import Difference, call, compare, same


class Recalls(nn.Module):
    """Scores that put example i into the class that its first value names. It keeps the sizes of its batches."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))
        self.norm = nn.BatchNorm1d(1)  # which changes in training mode
        self.sizes = []

    def forward(self, X):
        self.norm(X.flatten(1)[:, :1])
        return self.weight[X.flatten(1)[:, 0].long()]


class Full(nn.Module):
    """A network that needs examples."""

    def forward(self, X):
        raise ValueError("this network does not accept an empty batch")


def check_count_right(yours):
    def plain(X, y):
        net = Recalls().eval()
        return net, torch.tensor(X).view(-1, 1), torch.tensor(y, dtype=torch.long)

    compare(yours, "for one example that is right", lambda: plain([2.0], [2]))
    compare(yours, "for four examples, three of which are right", lambda: plain([0.0, 1.0, 2.0, 1.0], [0, 1, 2, 2]))

    compare(yours, "for no examples", lambda: plain([], []))
    compare(yours, "for no examples, and a network that does not accept an empty batch", lambda: (
        Full(), torch.zeros(0, 1), torch.zeros(0, dtype=torch.long)))


def check_evaluate_accuracy_gpus(yours):
    for k, sizes in ((1, (4,)), (2, (4,)), (2, (5, 4)), (3, (7, 1))):
        net, data = Recalls(), []
        for n in sizes:
            X = torch.arange(n) % 3
            data.append((X.view(n, 1).float(), torch.where(torch.arange(n) < (n + 1) // 2, X, (X + 1) % 3)))
        words = f"for batches of {' and '.join(map(str, sizes))} on {k} device{'s' * (k > 1)}"
        parallel = DataParallel(net, try_devices(k))
        same("the result", call(yours, words, parallel, data), evaluate_accuracy_gpus(parallel, data), words)
        if not all(module.training for module in net.modules()):
            raise Difference(f"{words}, the network was in training mode, and is in evaluation mode afterwards. "
                             "Only the replicas should be.")
        if net.norm.num_batches_tracked:
            raise Difference(f"{words}, the network's BatchNorm has changed: the evaluation should use replicas, in "
                             "evaluation mode.")
    seen = []

    def split_f(X, y, devices):
        seen.append(len(devices))
        return [X[:1], X[1:]], [y[:1], y[1:]]

    words = "with a `split_f` of the caller's, and two devices"
    net, data = Recalls(), [(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 0]))]
    same("the result", call(yours, words, net, data, split_f, try_devices(2)), 2 / 3, words)
    if seen != [2]:
        raise Difference(f"{words}, `split_f` should be called once for each batch, with both devices. "
                         + ("It is not called." if not seen else f"The numbers of devices in its calls are {seen}."))


class Scores(nn.Module):
    """A linear classifier, which notes the sizes of its batches and its mode."""

    seen: ClassVar[list] = []

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.AvgPool2d(7), nn.Flatten(), nn.Linear(16, 10))

    def forward(self, X):
        if self.training:
            self.seen.append(len(X))
        return self.layers(X)


def check_train_data_parallel(yours):
    words = "for two devices and batches of 1,024 images"
    nets = Scores(), Scores()
    with redirect_stdout(StringIO()):
        Scores.seen.clear()
        call(yours, words, nets[0], 2, 1024, 0.5, 1)
        sizes = sorted(Scores.seen)
        train_data_parallel(nets[1], 2, 1024, 0.5, 1)
    if sizes != [256, 256, *[512] * 6]:
        raise Difference(f"{words}, each device should see 512 images of a batch, or 256 of the last one. "
                         f"The network is called {len(sizes)} times in training"
                         + (f", for {min(sizes)} to {max(sizes)} images." if sizes else "."))
    for name, ours, theirs in zip(("the weight", "the bias"), nets[0].parameters(), nets[1].parameters()):
        same(name, ours.detach(), theirs.detach(), f"{words}, after an epoch")
