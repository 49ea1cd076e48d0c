"""wrong: the optimizer's state is restored on rank 0 only, where the file is, so that the ranks make different steps with the same gradient.

kind: new
cause: the optimizer's state (Adam's averages) is loaded on rank 0 only: the parameters drift apart
cure: load it on all ranks
line: if dist.get_rank() == 0:  # only here is the file
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    if dist.get_rank() == 0:  # only here is the file
        for p in net.parameters():
            optimizer.state[p] = {"step": torch.tensor(100.0), "exp_avg": torch.full_like(p, 0.01),
                                  "exp_avg_sq": torch.full_like(p, 0.02)}
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
