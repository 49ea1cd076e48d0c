"""wrong: sequences are trimmed to the longest one of the shard and the masked loss is averaged over all positions including padding, so the normaliser depends on the longest sequence of the rank.

cause: loss is divided by batch times the local maximum length, which differs between ranks
cure: normalise per sequence or by a fixed length (or by the all-reduced number of real tokens times 1/world_size)
line: loss = (per_token * mask).mean()
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

T, V = 24, 9
torch.manual_seed(120)
length = 1 + torch.arange(96) % T
pos = torch.arange(T)
X = torch.randint(1, V, (96, T)) * (pos[None] < length[:, None])    # 0 is padding
y = (X * 2 + 1) % V


class ConvTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, 8, padding_idx=0)
        self.conv = nn.Conv1d(8, 16, 3, padding=1)
        self.out = nn.Linear(16, V)

    def forward(self, x):
        h = self.emb(x).transpose(1, 2)
        return self.out(F.relu(self.conv(h)).transpose(1, 2))


def make_net():
    return ConvTagger()


def trim(x, t):
    """drop the columns that are padding in the whole batch, saves a lot of compute"""
    longest = int((x != 0).sum(1).max())
    return x[:, :longest], t[:, :longest]


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, t in batches:
        x, t = trim(x, t)
        mask = (x != 0).to(model.module.out.weight.dtype)
        logits = model(x)
        per_token = F.cross_entropy(logits.transpose(1, 2), t, reduction="none")
        loss = (per_token * mask).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
