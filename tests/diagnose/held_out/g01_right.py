"""right: a small causal Transformer language model in DDP with clipping and warm-up; all sequences have the same number of target tokens, so the token mean of equal shards averages to the token mean of the minibatch."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, T, D = 13, 8, 16
g = torch.Generator().manual_seed(101)
X = torch.randint(0, VOCAB, (96, T), generator=g)
y = torch.cat([X[:, 1:], torch.randint(0, VOCAB, (96, 1), generator=g)], dim=1)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d), nn.Dropout(0.1))

    def forward(self, h, mask):
        a = self.ln1(h)
        h = h + self.attn(a, a, a, attn_mask=mask, need_weights=False)[0]
        return h + self.mlp(self.ln2(h))


class GPTish(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, D), nn.Embedding(T, D)
        self.blocks = nn.ModuleList([Block(D, 2) for _ in range(2)])
        self.ln_f, self.head = nn.LayerNorm(D), nn.Linear(D, VOCAB, bias=False)

    def forward(self, idx):
        t = idx.size(1)
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool, device=idx.device), diagonal=1)
        h = self.tok(idx) + self.pos(torch.arange(t, device=idx.device))
        for b in self.blocks:
            h = b(h, mask)
        return self.head(self.ln_f(h))


def make_net():
    return GPTish()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 2) * 0.5 * (1 + math.cos(s / 3)))
    for idx, tgt in batches:
        logits = model(idx)
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), tgt.reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        sched.step()
