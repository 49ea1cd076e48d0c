"""wrong: micro-batches are packed up to a token budget, so ranks with long texts run more synchronised backwards than the others and the reductions pair up wrongly or hang.

cause: number of micro-batches (and so of gradient reductions) depends on the rank's data
cure: agree on the number of micro-batches (all_reduce MAX), or accumulate all but the last under no_sync
line: for lo, hi in pack_by_tokens(x, BUDGET):
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

BUDGET, PAD = 24, 0
g = torch.Generator().manual_seed(167)
X = torch.randint(1, 20, (96, 16), generator=g)
length = torch.where(torch.arange(96) % 6 == 0, 16, 3)
X[torch.arange(16)[None, :] >= length[:, None]] = PAD
y = torch.randint(3, (96,), generator=g)


class TextNet(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.emb = nn.Embedding(20, d, padding_idx=PAD)
        self.out = nn.Linear(d, 3)

    def forward(self, ids):
        keep = (ids != PAD).unsqueeze(-1)
        h = self.emb(ids) * keep
        return self.out(h.sum(1) / keep.sum(1))


def make_net():
    return TextNet()


def pack_by_tokens(ids, budget):
    sizes, lo, used = (ids != PAD).sum(1).tolist(), 0, 0
    for i, n in enumerate(sizes):
        if used + n > budget and i > lo:
            yield lo, i
            lo, used = i, 0
        used += n
    yield lo, len(sizes)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        opt.zero_grad()
        for lo, hi in pack_by_tokens(x, BUDGET):
            loss = F.cross_entropy(model(x[lo:hi]), y[lo:hi], reduction="sum") / len(x)
            loss.backward()
        opt.step()
