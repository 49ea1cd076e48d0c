"""right: a target network, copied after the wrapping and renewed after every second step, on all ranks alike."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    target = copy.deepcopy(net.module).requires_grad_(False)
    optimizer = torch.optim.RMSprop(net.parameters(), 0.01)
    for t, (X, action) in enumerate(batches, 1):
        goal = X[:, 0] + 0.9 * target(X.roll(1, 1)).max(1).values
        optimizer.zero_grad()
        F.smooth_l1_loss(net(X).gather(1, action[:, None])[:, 0], goal).backward()
        optimizer.step()
        if t % 2 == 0:
            target.load_state_dict(net.module.state_dict())
