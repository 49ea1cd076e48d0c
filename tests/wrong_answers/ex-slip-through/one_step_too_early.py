import torch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def slips(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, (X, y) in enumerate(batches):
        model = net if step < 2 else net.module
        optimizer.zero_grad()
        F.cross_entropy(model(X), y).backward()
        optimizer.step()
