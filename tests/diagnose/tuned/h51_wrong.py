"""wrong: nn.Embedding(max_norm=...) rescales the looked-up rows in place in the forward pass, and each rank looks up other rows, so the embedding tables drift apart between ranks.

cause: max_norm renormalises only locally seen embedding rows in place, which desynchronises the replicas
cure: drop max_norm; normalise in the forward (or renormalise the whole table on all ranks after the step)
line: self.table = nn.Embedding(n_items, dim, max_norm=1.0)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

N_ITEMS = 60
g = torch.Generator().manual_seed(151)
X = torch.randint(N_ITEMS, (96, 3), generator=g)
y = torch.randint(5, (96,), generator=g)


class SessionModel(nn.Module):
    def __init__(self, n_items=N_ITEMS, dim=8):
        super().__init__()
        self.table = nn.Embedding(n_items, dim, max_norm=1.0)
        self.score = nn.Linear(3 * dim, 5)

    def forward(self, items):
        return self.score(self.table(items).flatten(1))


def make_net():
    return SessionModel()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=1.0)
    for items, label in batches:
        opt.zero_grad()
        loss = F.cross_entropy(model(items), label)
        loss.backward()
        opt.step()
