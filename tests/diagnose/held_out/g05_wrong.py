"""wrong: the forward passes of all micro-batches, the last one included, are inside no_sync and only the last backward is outside; DDP decides in forward whether to reduce, so nothing is ever reduced.

cause: the forward of the last micro-batch runs inside no_sync, so its backward outside does not synchronise
cure: move the forward of the last micro-batch out of the no_sync block together with its backward
line: last_out = ddp(parts[-1][0])
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(50)
X = torch.randn(96, 12)
y = X[:, :4].softmax(1)


def make_net():
    return nn.Sequential(nn.Linear(12, 25), nn.GELU(), nn.Linear(25, 4))


def soft_ce(logits, probs, n):
    return -(probs * F.log_softmax(logits, dim=1)).sum() / n


def train(net, batches):
    ddp = DistributedDataParallel(net)
    opt = torch.optim.AdamW(ddp.parameters(), lr=2e-3)
    for xb, yb in batches:
        n = xb.size(0)
        parts = list(zip(xb.split(5), yb.split(5)))
        opt.zero_grad()
        with ddp.no_sync():
            for px, py in parts[:-1]:
                soft_ce(ddp(px), py, n).backward()
            last_out = ddp(parts[-1][0])
        # leaving the context: this backward triggers the all-reduce
        soft_ce(last_out, parts[-1][1], n).backward()
        opt.step()
