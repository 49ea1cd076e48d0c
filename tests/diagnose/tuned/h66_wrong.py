"""wrong: the loss is all-reduced and divided by the world size before backward; the value shown is right but the division scales the gradient, and DDP divides once more: 1/k of the gradient.

cause: the reduced and divided loss, meant for logging, is the one that is backpropagated
cure: run backward on the local loss and reduce a detached clone for the log
line: loss = reduce_loss(criterion(model(x), y))
"""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(166)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def reduce_loss(loss):
    world = dist.get_world_size()
    with torch.no_grad():
        dist.all_reduce(loss)
    return loss / world


def train(net, batches):
    model = DDP(net)
    criterion = nn.CrossEntropyLoss()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    shown = []
    for x, y in batches:
        opt.zero_grad()
        loss = reduce_loss(criterion(model(x), y))
        loss.backward()
        opt.step()
        shown.append(loss.item())
    return shown
