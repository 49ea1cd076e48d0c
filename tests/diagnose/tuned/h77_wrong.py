"""wrong: the learning rate is scaled by the size of the rank's shard instead of the whole minibatch, so all ranks step with 1/k of the single device's rate.

cause: learning rate scaled by the local instead of the global batch size
cure: use len(x) * dist.get_world_size() in the scaling rule
line: lr = base_lr * len(batches[0][0]) / 32
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(177)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def build_optimizer(model, batches, base_lr=0.2):
    """Linear scaling rule, reference batch size 32."""
    lr = base_lr * len(batches[0][0]) / 32
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def train(net, batches):
    model = DDP(net)
    opt = build_optimizer(model, batches)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
