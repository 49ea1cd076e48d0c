"""right: only the backward is inside no_sync while the forward is outside, so DDP still synchronises at every micro-batch; averaging an already averaged accumulation again is harmless, it only costs traffic."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(5)
X = torch.randn(96, 8, generator=g)
y = (X.sum(1) > 0).long()


class Net(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.fc1 = nn.Linear(8, hidden)
        self.fc2 = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.fc2(F.elu(self.fc1(x)))


def make_net():
    return Net()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    for x, y in batches:
        opt.zero_grad()
        half = len(x) // 2
        parts = [(x[:half], y[:half]), (x[half:], y[half:])]
        for k, (px, py) in enumerate(parts):
            loss = F.cross_entropy(model(px), py) * len(px) / len(x)
            if k + 1 < len(parts):
                with model.no_sync():
                    loss.backward()
            else:
                loss.backward()
        opt.step()
