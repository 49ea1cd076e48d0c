"""right: the loop runs inside DDP's join context for uneven inputs; with equal numbers of batches join changes nothing."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(58)
X = torch.randn(96, 6, generator=g)
y = torch.randint(5, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 20), nn.PReLU(), nn.Linear(20, 5))


def train(net, batches):
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    with model.join():
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
    dist.barrier()
