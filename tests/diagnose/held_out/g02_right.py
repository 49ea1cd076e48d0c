"""right: accumulates over four micro-batches under no_sync and synchronises on the last one; every micro-batch is weighted by its share of the shard, so the sum is the mean over the shard."""
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(7)
X = torch.randn(96, 10)
y = (X[:, :3].sum(1, keepdim=True) + 0.3 * torch.randn(96, 1)).tanh()

ACCUM = 4


def make_net():
    return nn.Sequential(
        nn.Linear(10, 24), nn.SiLU(),
        nn.Linear(24, 24), nn.SiLU(),
        nn.Linear(24, 1),
    )


def train(net, batches):
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.SmoothL1Loss()
    for inputs, targets in batches:
        micro_x = inputs.chunk(ACCUM)
        micro_y = targets.chunk(ACCUM)
        optimizer.zero_grad()
        for step, (mx, my) in enumerate(zip(micro_x, micro_y)):
            last = step == len(micro_x) - 1
            ctx = nullcontext() if last else ddp.no_sync()
            with ctx:
                loss = criterion(ddp(mx), my)
                # chunk() may make the last piece shorter, so weight by size
                (loss * len(mx) / len(inputs)).backward()
        optimizer.step()
