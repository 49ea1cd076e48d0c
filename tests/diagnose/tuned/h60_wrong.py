"""wrong: every rank keeps the largest entries of its own gradient and all-reduces only the values; the indices differ by rank, so values of different coordinates are added up.

cause: top-k compression all-reduces values whose indices differ between ranks
cure: all_gather indices together with values (or all_reduce a dense sparse-masked gradient)
line: dist.all_reduce(values)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(160)
X = torch.randn(96, 10, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 4))


class TopKReducer:
    """Send a part of the gradient only (ratio=1 sends all, in order of size)."""

    def __init__(self, ratio=0.5):
        self.ratio = ratio

    def __call__(self, grad):
        flat = grad.view(-1)
        k = max(1, int(self.ratio * flat.numel()))
        idx = flat.abs().topk(k).indices
        values = flat[idx]
        dist.all_reduce(values)
        flat.zero_()
        flat[idx] = values / dist.get_world_size()


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    reduce = TopKReducer(ratio=1.0)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        for p in net.parameters():
            reduce(p.grad)
        opt.step()
