"""wrong: the BYOL target network is copied from the online encoder before DDP broadcasts rank 0's weights, so each rank regresses to a target network of its own initialisation.

cause: target network is copied before the DDP broadcast, so it differs between ranks
cure: wrap in DDP first and then copy target = copy.deepcopy(online.module.encoder), or broadcast the target
line: target = copy.deepcopy(net.encoder)
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(231)
img = torch.randn(96, 1, 10)
X = torch.cat([img, img + 0.2 * torch.randn(96, 1, 10)], 1)
y = torch.zeros(96)


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 8))
        self.predictor = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        return self.predictor(self.encoder(x))


def make_net():
    return Online()


def regression_loss(p, z):
    return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1).mean()


def train(net, batches, tau=0.9):
    target = copy.deepcopy(net.encoder)
    target.requires_grad_(False)
    online = DDP(net)
    opt = torch.optim.SGD(online.parameters(), lr=0.2, momentum=0.9)
    for views, _ in batches:
        v1, v2 = views[:, 0], views[:, 1]
        with torch.no_grad():
            t1, t2 = target(v1), target(v2)
        p1, p2 = online(torch.cat([v1, v2])).chunk(2)
        loss = regression_loss(p1, t2) + regression_loss(p2, t1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for t, o in zip(target.parameters(), online.module.encoder.parameters()):
                t.lerp_(o, 1 - tau)
