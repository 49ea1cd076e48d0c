"""wrong: the auxiliary loss alone is multiplied by the world size, so that it weighs k times more than on the single device.

cause: one loss term (the auxiliary one) is scaled by the world size
cure: drop the factor; DDP averages both terms alike
line: loss = main + 0.3 * world * aux
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(135)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.cls = nn.Linear(16, 4)
        self.rec = nn.Linear(16, 6)

    def forward(self, x):
        h = self.enc(x)
        return self.cls(h), self.rec(h)


def make_net():
    return Net()


def train(net, batches):
    world = dist.get_world_size()
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in batches:
        logits, rec = model(x)
        main = F.cross_entropy(logits, y)
        aux = F.mse_loss(rec, x)  # averaged away by DDP otherwise
        loss = main + 0.3 * world * aux
        opt.zero_grad()
        loss.backward()
        opt.step()
