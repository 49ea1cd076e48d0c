"""What a watched step costs: `python book/tools/watch_cost.py` trains three networks on two ranks under `watch`.

The first two epochs are watched and the last two are not, in one and the same run; printed is the ratio of the median
steps. The script trains itself: the command below starts this file again, as what is watched.
"""

import os
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Transformer(nn.Module):
    """Four layers of width 128, for sequences of 64 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, 128)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True), 4)
        self.classes = nn.Linear(128, 10)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.classes(self.layers(self.tokens(X)).mean(1))


def resnet() -> nn.Module:
    """ResNet-18 for ten classes."""
    from torchvision.models import resnet18

    return resnet18(num_classes=10)


CASES = {"ResNet-18, images of 64 x 64": (resnet, lambda: torch.randn(384, 3, 64, 64)),
         "transformer": (Transformer, lambda: torch.randint(100, (512, 64))),
         "MLP": (lambda: nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)),
                 lambda: torch.randn(768, 784))}


def train(name: str) -> None:
    """Five epochs of minibatches of 16 a rank; rank 0 prints the ratio."""
    dist.init_process_group("gloo")
    make_net, examples = CASES[name]
    torch.manual_seed(0)
    X = examples()
    data = TensorDataset(X, torch.randint(10, (len(X),)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 16, sampler=sampler)
    net = DistributedDataParallel(make_net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    epochs = []
    for epoch in range(5):
        sampler.set_epoch(epoch)
        epochs.append([])
        for X, y in loader:
            start = time.perf_counter()
            optimizer.zero_grad()
            F.cross_entropy(net(X), y).backward()
            optimizer.step()
            epochs[-1].append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        watched, bare = statistics.median(epochs[0][2:] + epochs[1]), statistics.median(epochs[3] + epochs[4])
        print(f"{name}: {1e3 * watched:.1f} ms watched, {1e3 * bare:.1f} ms not, {watched / bare:.2f} times as long")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(sys.argv[1])
    else:
        for name in CASES:
            run = subprocess.run([sys.executable, "-W", "ignore", "-m", "d2lpar", "watch", "--show", "--to-the-end",
                                  __file__, name], capture_output=True, text=True)
            print(next((line for line in run.stderr.splitlines() if line.startswith(name)), run.stdout + run.stderr))
