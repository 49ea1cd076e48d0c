"""right: token-level loss with padding: the local sum is divided by the all-reduced number of tokens and multiplied by the world size to cancel DDP's division."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

PAD, VOCAB, T = -100, 15, 10
g = torch.Generator().manual_seed(39)
X = torch.randint(1, VOCAB, (96, T), generator=g)
y = torch.randint(1, VOCAB, (96, T), generator=g)
lengths = 2 + torch.arange(96) % 9
y[torch.arange(T)[None, :] >= lengths[:, None]] = PAD


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 12)
        self.lstm = nn.LSTM(12, 12, batch_first=True)
        self.out = nn.Linear(12, VOCAB)

    def forward(self, ids):
        h, _ = self.lstm(self.emb(ids))
        return self.out(h)


def make_net():
    return Tagger()


def token_loss(logits, labels):
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="sum")
    num = (labels != PAD).sum()
    dist.all_reduce(num)
    return total * dist.get_world_size() / num


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for ids, labels in batches:
        opt.zero_grad()
        token_loss(model(ids), labels).backward()
        opt.step()
