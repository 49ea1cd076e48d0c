"""wrong: the mean loss is divided by the world size although DDP averages already, so the gradient is 1/k of the single device's.

cause: loss divided by the world size on top of DDP's own averaging
cure: remove the division by world size; call loss.backward() on the plain mean loss
line: loss = criterion(model(data), target) / dist.get_world_size()
"""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(101)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def train_epoch(model, loader, criterion, optimizer):
    model.train()
    running = 0.0
    for data, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(data), target) / dist.get_world_size()
        loss.backward()
        optimizer.step()
        running += loss.item()
    return running


def train(net, batches):
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train_epoch(model, batches, nn.CrossEntropyLoss(), optimizer)
