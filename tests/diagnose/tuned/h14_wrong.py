"""wrong: pos_weight for the binary loss is computed from the labels of the rank's own shard, so ranks optimise different losses, none of them the minibatch's.

cause: class balance (pos_weight) estimated from local labels only
cure: all_reduce the positive and negative counts before computing pos_weight
line: pos = labels.sum()
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(114)
X = torch.randn(96, 6, generator=g)
y = ((torch.arange(96) % 6 == 0) | (torch.rand(96, generator=g) < 0.15)).long()


def make_net():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))


def balanced_bce(logits, labels):
    pos = labels.sum()
    neg = labels.numel() - pos
    pos_weight = neg / pos.clamp(min=1)
    return F.binary_cross_entropy_with_logits(logits, labels, pos_weight=pos_weight)


def train(net, batches):
    ddp = DDP(net)
    opt = torch.optim.Adam(ddp.parameters(), lr=5e-3)
    for x, lab in batches:
        logits = ddp(x).squeeze(-1)
        loss = balanced_bce(logits, lab.to(logits.dtype))
        opt.zero_grad()
        loss.backward()
        opt.step()
