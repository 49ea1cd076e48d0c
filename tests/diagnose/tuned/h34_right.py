"""right: ZeroRedundancyOptimizer shards Adam's state over the ranks; gradients are DDP averages and each updated shard is broadcast after the step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(35)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(),
        nn.Linear(16, 16), nn.ReLU(),
        nn.Linear(16, 4),
    )


def build_optimizer(model):
    return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-2)


def train(net, batches):
    model = DDP(net)
    opt = build_optimizer(model)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
