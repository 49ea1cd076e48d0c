"""wrong: the embedding is frozen after DDP was built, so that its hook never fires, its bucket is never reduced and the next forward raises the unfinished-reduction error.

cause: parameters frozen after wrapping; DDP still waits for their gradients
cure: set requires_grad=False before constructing DDP
line: model.module.emb.weight.requires_grad_(False)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(124)
X = torch.randint(30, (96, 5), generator=g)
y = torch.randint(2, (96,), generator=g)


class BagOfWords(nn.Module):
    def __init__(self, vocab=30, dim=8):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.fc = nn.Sequential(nn.Linear(dim, 12), nn.ReLU(), nn.Linear(12, 2))

    def forward(self, ids):
        return self.fc(self.emb(ids).mean(1))


def make_net():
    return BagOfWords()


def train(net, batches):
    model = DDP(net)
    # keep the pretrained vectors as they are
    model.module.emb.weight.requires_grad_(False)
    opt = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2)
    for ids, label in batches:
        opt.zero_grad()
        F.cross_entropy(model(ids), label).backward()
        opt.step()
