"""wrong: a rank whose own loss explodes leaves the loop by itself, and the others wait for it in the backward pass.

kind: new
cause: one rank stops by its own loss, the others go on and wait
cure: let all decide together, by an all_reduce of the loss
line: if loss > 600:
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randn(72, generator=draw)
y[25] = 100.0  # in the second minibatch, on rank 1 of two or of three


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.001)
    for X, y in batches:
        optimizer.zero_grad()
        loss = F.mse_loss(net(X)[:, 0], y)
        if loss > 600:
            break
        loss.backward()
        optimizer.step()
