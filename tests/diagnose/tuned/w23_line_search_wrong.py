"""wrong: LBFGS searches along a line by the rank's own loss, so that the ranks go differently far, or call the closure a different number of times.

kind: new
cause: the closure returns the rank's own loss, by which the line search decides: the ranks drift apart or hang
cure: return the loss averaged over the ranks
line: return loss
"""

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
    optimizer = torch.optim.LBFGS(net.parameters(), 1.0, max_iter=4, line_search_fn="strong_wolfe")
    for X, y in batches:
        def closure(X=X, y=y):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(X), y)
            loss.backward()
            return loss
        optimizer.step(closure)
