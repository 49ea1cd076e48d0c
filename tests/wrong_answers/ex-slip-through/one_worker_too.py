import torch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def slips(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:  # never cleared
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
