"""wrong: Cox's loss compares each with all that live longer, and here with those of the shard only.

kind: new
cause: the loss compares examples of the shard only (the risk set of a survival loss): not a mean over examples
cure: gather scores and times of all ranks, with the scores' gradient
line: scores = net(X)[y.argsort(descending=True), 0]
"""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randn(72, generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        scores = net(X)[y.argsort(descending=True), 0]
        (scores.logcumsumexp(0) - scores).mean().backward()
        optimizer.step()
