"""right: a small nanoGPT: causal mask of minus infinity in a buffer, tied head, decay for matrices only, cosine rate, accumulation by require_backward_grad_sync, clipping after the exchange."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
text = torch.randint(16, (72, 9), generator=draw)
X, y = text[:, :-1], text[:, 1:]


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe, self.ln = nn.Embedding(16, 8), nn.Embedding(8, 8), nn.LayerNorm(8)
        self.qkv, self.proj, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 16, bias=False)
        self.head.weight = self.wte.weight
        self.register_buffer("mask", torch.full((8, 8), -torch.inf).triu(1), persistent=False)

    def forward(self, X):
        h = self.wte(X) + self.wpe(torch.arange(X.shape[1]))
        q, k, v = (z.view(*X.shape, 2, 4).transpose(1, 2) for z in self.qkv(self.ln(h)).split(8, -1))
        share = (q @ k.transpose(-2, -1) / 2 + self.mask[:X.shape[1], :X.shape[1]]).softmax(-1)
        return self.head(h + self.proj((share @ v).transpose(1, 2).flatten(2)))


def make_net():
    return GPT()


def train(net, batches):
    net = DDP(net)
    matrices = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=0.01, betas=(0.9, 0.95))
    for t, (X, y) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = 0.001 + 0.0045 * (1 + math.cos(math.pi * t / len(batches)))
        parts = list(zip(X.chunk(2), y.chunk(2)))
        for i, (A, c) in enumerate(parts):
            net.require_backward_grad_sync = i == len(parts) - 1
            (F.cross_entropy(net(A).flatten(0, 1), c.flatten()) / len(parts)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
