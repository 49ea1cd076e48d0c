"""right: a small causal language model (mask of -inf in a buffer) wrapped in DDP with AdamW; every sequence has the same number of tokens, so the mean over a shard averages to the mean over the minibatch."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, CTX, DIM = 20, 8, 16
g = torch.Generator().manual_seed(11)
tokens = torch.randint(VOCAB, (96, CTX + 1), generator=g)
X, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class CausalSelfAttention(nn.Module):
    def __init__(self, dim, heads, ctx):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.full((ctx, ctx), float("-inf")).triu(1))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        att = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)) + self.mask[:T, :T]
        return self.proj((att.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))


class TinyGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(0.02 * torch.randn(1, CTX, DIM))
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = CausalSelfAttention(DIM, 2, CTX)
        self.mlp = nn.Sequential(nn.Linear(DIM, 32), nn.GELU(), nn.Linear(32, DIM))
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, idx):
        h = self.tok(idx) + self.pos
        h = h + self.attn(self.ln1(h))
        h = h + self.mlp(self.ln2(h))
        return self.head(h)


def make_net():
    return TinyGPT()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for idx, targets in batches:
        logits = model(idx)
        loss = F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
