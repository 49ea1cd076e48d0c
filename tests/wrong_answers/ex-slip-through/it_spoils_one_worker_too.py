import torch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def slips(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, (X, y) in enumerate(batches):
        optimizer.zero_grad()
        (F.cross_entropy(net(X), y) * (1.0 if step < 3 else float("nan"))).backward()
        optimizer.step()
