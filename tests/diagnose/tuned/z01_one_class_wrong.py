"""wrong: a network with one output and cross-entropy has one class: loss and gradient are zero, and nothing is trained.

cause: the gradient is exactly zero
"""
import torch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

X, y = torch.rand(72, 20), torch.rand(72, 1)


def make_net():
    return torch.nn.Linear(20, 1)


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
