"""wrong: the scheduler is stepped on rank 0 only, so from the second step on rank 0 uses a smaller learning rate and its weights leave the others'.

cause: lr scheduler stepped on rank 0 only
cure: step the scheduler on every rank (keep only the logging under rank 0)
line: scheduler.step()
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(155)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def is_main_process():
    return dist.get_rank() == 0


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
    history = []
    for x, y in batches:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        if is_main_process():
            history.append((loss.item(), scheduler.get_last_lr()[0]))
            scheduler.step()
    return history
