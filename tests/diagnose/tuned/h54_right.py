"""right: DDP already averages and the script averages again by hand; a mean of equal values is the same value, so this is only redundant."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(55)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 2, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))


def sync_gradients(model):
    """Left over from before the move to DDP."""
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.ASGD(model.parameters(), lr=0.05)
    for x, t in batches:
        opt.zero_grad()
        loss = F.mse_loss(model(x), t)
        loss.backward()
        sync_gradients(model)
        opt.step()
