"""wrong: rank 0 reduces the loss sum and then the token count, the other ranks the other way round; the collectives pair up wrongly and the normaliser is garbage.

cause: collectives called in a different order on rank 0 than on the others
cure: call the all_reduces in the same order on every rank (or stack both into one tensor)
line: if dist.get_rank() == 0:
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(118)
X = torch.randn(96, 5, generator=g)
y = torch.randn(96, 4, generator=g)
MISSING = -99.0
y[torch.rand(96, 4, generator=g) < 0.3] = MISSING


def make_net():
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 4))


def global_stats(loss_sum, count):
    loss_sum, count = loss_sum.detach().clone(), count.clone()
    if dist.get_rank() == 0:
        dist.all_reduce(loss_sum)
        dist.all_reduce(count)
    else:
        dist.all_reduce(count)
        dist.all_reduce(loss_sum)
    return loss_sum / count, count


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, t in batches:
        have = t != MISSING
        err = (model(x) - t).pow(2)[have].sum()
        shown, count = global_stats(err, have.sum().to(err.dtype))
        loss = err * dist.get_world_size() / count
        opt.zero_grad()
        loss.backward()
        opt.step()
