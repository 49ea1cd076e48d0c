"""right: each shard goes through a DataLoader of micro-batches of three, the loss divided by their number, and the step follows the last: the mean over the shard, as three divides it (where not, a note)."""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

draw = torch.Generator().manual_seed(9)
X, y = torch.randn(144, 6, generator=draw), torch.randint(4, (144,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.RMSprop(net.parameters(), 0.01)
    for X, y in batches:
        loader = DataLoader(TensorDataset(X, y), batch_size=3)
        for i, (A, c) in enumerate(loader):
            last = i == len(loader) - 1
            with nullcontext() if last else net.no_sync():
                (F.cross_entropy(net(A), c) / len(loader)).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
