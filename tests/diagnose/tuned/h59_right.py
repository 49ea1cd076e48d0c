"""right: an orthogonality penalty is computed straight from ddp.module's weights, but added to the loss of a forward through the wrapper and run back in the same backward, so it is averaged with the rest (each rank has the same penalty)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(60)
X = torch.randn(96, 8, generator=g)
y = torch.randint(3, (96,), generator=g)


class ProjNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 5, bias=False)
        self.clf = nn.Linear(5, 3)

    def forward(self, x):
        return self.clf(self.proj(x))

    def ortho(self):
        w = self.proj.weight
        return (w @ w.t() - torch.eye(5, dtype=w.dtype)).pow(2).sum()


def make_net():
    return ProjNet()


def train(net, batches):
    ddp = DDP(net)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for x, y in batches:
        data_loss = F.cross_entropy(ddp(x), y)
        loss = data_loss + 0.1 * ddp.module.ortho()
        opt.zero_grad()
        loss.backward()
        opt.step()
