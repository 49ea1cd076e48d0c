import torch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def slips(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net.module(X), y).backward()
        optimizer.step()
