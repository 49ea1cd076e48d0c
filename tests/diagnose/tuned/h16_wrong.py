"""wrong: the auxiliary head takes part only if the shard holds a flagged example; ranks without one leave its parameters unused, DDP's reduction never completes and the next forward fails or hangs.

cause: data-dependent unused parameters without find_unused_parameters
cure: DDP(net, find_unused_parameters=True), or let the head always take part (multiply its loss by zero)
line: model = DDP(net)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(116)
X = torch.randn(96, 6, generator=g)
X[:, 0] = (torch.arange(96) % 6 == 0).to(X.dtype)  # the flag
y = torch.randint(3, (96,), generator=g)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.main = nn.Linear(16, 3)
        self.mask_head = nn.Linear(16, 3)

    def forward(self, x):
        h = self.body(x)
        flagged = x[:, 0] > 0.5
        extra = self.mask_head(h[flagged]) if flagged.any() else None
        return self.main(h), extra, flagged


def make_net():
    return Net()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        logits, extra, flagged = model(x)
        loss = F.cross_entropy(logits, y)
        if extra is not None:
            loss = loss + 0.5 * F.cross_entropy(extra, y[flagged], reduction="sum") / len(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
