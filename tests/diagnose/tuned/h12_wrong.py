"""wrong: cross-entropy with ignore_index averages over the rank's own non-padding tokens; the token counts differ by rank, so the mean of these means is not the minibatch's token mean.

cause: loss normalised by the local number of valid tokens
cure: sum the loss, divide by the all-reduced token count and multiply by the world size
line: loss = F.cross_entropy(logits.view(-1, V), tgt.reshape(-1), ignore_index=IGNORE)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

IGNORE, V, L = -100, 12, 12
g = torch.Generator().manual_seed(112)
X = torch.randint(V, (96, L), generator=g)
y = torch.randint(V, (96, L), generator=g)
short = torch.arange(96) % 6 != 0
y[short, 3:] = IGNORE  # most sequences have 3 answer tokens, some have 12


class LM(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.lm_head = nn.Linear(d, V)

    def forward(self, ids):
        return self.lm_head(self.rnn(self.emb(ids))[0])


def make_net():
    return LM()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for src, tgt in batches:
        logits = model(src)
        loss = F.cross_entropy(logits.view(-1, V), tgt.reshape(-1), ignore_index=IGNORE)
        opt.zero_grad()
        loss.backward()
        opt.step()
