"""wrong: raw labels are mapped to class indices by an encoder fitted on the rank's own shard, so the same label means different classes on different ranks.

cause: label encoding built from local data only; class ids differ by rank
cure: build the mapping from all labels (all_gather the label sets) or use a fixed list
line: encoder = LabelEncoder().fit(torch.cat([t for _, t in batches]))
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(153)
X = torch.randn(96, 6, generator=g)
y = 1000 + 7 * torch.randint(40, (96,), generator=g)  # product codes


class LabelEncoder:
    def fit(self, labels):
        self.index = {int(v): i for i, v in enumerate(sorted(set(labels.tolist())))}
        return self

    def __call__(self, labels):
        return torch.tensor([self.index[int(v)] for v in labels])


def make_net():
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 40))


def train(net, batches):
    encoder = LabelEncoder().fit(torch.cat([t for _, t in batches]))
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, codes in batches:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), encoder(codes))
        loss.backward()
        opt.step()
