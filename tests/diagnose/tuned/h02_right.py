"""right: accumulation over 2 micro-batches, the first under no_sync (forward and backward), each weighted by its share of the batch, so the last backward averages the whole accumulated gradient."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(2)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4))


def train(net, batches):
    ddp = DDP(net)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for inputs, labels in batches:
        n = len(inputs)
        optimizer.zero_grad()
        (x1, x2), (y1, y2) = inputs.chunk(2), labels.chunk(2)
        with ddp.no_sync():
            loss = criterion(ddp(x1), y1) * (len(x1) / n)
            loss.backward()
        loss = criterion(ddp(x2), y2) * (len(x2) / n)
        loss.backward()
        optimizer.step()
