"""wrong: the averaging loop skips parameters whose gradient is None, and which ones are None depends on the rank's data, so ranks call different numbers of all_reduces and they pair up wrongly or hang.

cause: gradients that are None on some ranks only are skipped in the all_reduce loop
cure: replace None by zeros before the all_reduce so that every rank reduces every parameter
line: if p.grad is None:
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(133)
X = torch.randn(96, 6, generator=g)
y = torch.where(torch.arange(96) % 6 == 0, 1, 0) + 2 * torch.randint(2, (96,), generator=g)


class TwoExperts(nn.Module):
    """odd labels go to the expert for odd labels"""

    def __init__(self):
        super().__init__()
        self.odd = nn.Linear(6, 4)
        self.even = nn.Linear(6, 4)

    def forward(self, x, y):
        losses = []
        for expert, sel in ((self.odd, y % 2 == 1), (self.even, y % 2 == 0)):
            if sel.any():
                losses.append(F.cross_entropy(expert(x[sel]), y[sel], reduction="sum"))
        return sum(losses) / len(x)


def make_net():
    return TwoExperts()


def average_gradients(net):
    for p in net.parameters():
        if p.grad is None:
            continue
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        opt.zero_grad(set_to_none=True)
        net(x, y).backward()
        average_gradients(net)
        opt.step()
