"""right: (augmentation noise, labelled) each rank adds small Gaussian noise of its own to its inputs; independent augmentation per rank is intended and nothing else differs."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(56)
X = torch.randn(96, 6, generator=g)
y = torch.randint(3, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


class JitterAugment:
    def __init__(self, sigma, seed):
        self.sigma = sigma
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, x):
        noise = torch.randn(x.shape, generator=self.gen, dtype=x.dtype)
        return x + self.sigma * noise


def train(net, batches):
    model = DDP(net)
    augment = JitterAugment(0.02, seed=1234 + dist.get_rank())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(augment(x)), y).backward()
        opt.step()
