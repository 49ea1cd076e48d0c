"""wrong: the second loss is weighted by the ratio of the two losses on the rank's own shard, so each rank optimises another mixture, none of them the single device's.

cause: adaptive loss weight computed from local losses
cure: all_reduce both loss values before taking the ratio
line: weight = (rec.detach() / (reg.detach() + 1e-8)).clamp(0, 100)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(172)
X = torch.randn(96, 8, generator=g)
y = torch.randint(3, (96,), generator=g)


class SupAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(8, 5)
        self.dec = nn.Linear(5, 8)
        self.cls = nn.Linear(5, 3)

    def forward(self, x):
        z = torch.tanh(self.enc(x))
        return self.dec(z), self.cls(z), z


def make_net():
    return SupAE()


def balance(rec, reg):
    weight = (rec.detach() / (reg.detach() + 1e-8)).clamp(0, 100)
    return rec + weight * reg


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in batches:
        out, logits, z = model(x)
        loss = balance(F.mse_loss(out, x), z.pow(2).mean()) + F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
