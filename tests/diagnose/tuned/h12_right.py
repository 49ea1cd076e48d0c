"""right: a two-tower recommender with dense embeddings and Adagrad; the pointwise BCE is a mean over examples, so DDP's average is exact."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

USERS, ITEMS = 30, 40
g = torch.Generator().manual_seed(13)
X = torch.stack([torch.randint(USERS, (144,), generator=g), torch.randint(ITEMS, (144,), generator=g)], dim=1)
y = torch.randint(2, (144,), generator=g)


class TwoTower(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.user = nn.Embedding(USERS, d)
        self.item = nn.Embedding(ITEMS, d)
        self.user_bias = nn.Embedding(USERS, 1)
        self.item_bias = nn.Embedding(ITEMS, 1)
        self.offset = nn.Parameter(torch.zeros(1))

    def forward(self, pairs):
        u, i = pairs.unbind(1)
        dot = (self.user(u) * self.item(i)).sum(-1)
        return dot + self.user_bias(u).squeeze(-1) + self.item_bias(i).squeeze(-1) + self.offset


def make_net():
    return TwoTower()


def train(net, batches):
    ddp = DDP(net)
    opt = torch.optim.Adagrad(ddp.parameters(), lr=0.05)
    for pairs, clicked in batches:
        score = ddp(pairs)
        loss = F.binary_cross_entropy_with_logits(score, clicked.to(score.dtype))
        opt.zero_grad()
        loss.backward()
        opt.step()
