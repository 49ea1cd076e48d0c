"""right: domain-adversarial training with a gradient reversal function; class and domain loss are means over all examples of the equal shards, and reversing is linear, so averaging over ranks commutes with it."""
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

gen = torch.Generator().manual_seed(150)
feat = torch.randn(96, 10, generator=gen)
dom = torch.randint(0, 2, (96, 1), generator=gen)
X = feat + 0.5 * dom
y = torch.cat([(feat[:, :3].argmax(1, keepdim=True)), dom], 1)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lam):
        ctx.lam = lam
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.lam * g, None


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 12), nn.ReLU())
        self.label_head = nn.Linear(12, 3)
        self.domain_head = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x, lam):
        z = self.features(x)
        return self.label_head(z), self.domain_head(Reverse.apply(z, lam))


def make_net():
    return DANN()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    total = len(batches)
    for i, (x, lab) in enumerate(batches):
        p = i / total
        lam = 2 / (1 + math.exp(-10 * p)) - 1
        for group in opt.param_groups:
            group["lr"] = 0.05 / (1 + 10 * p) ** 0.75
        cls, d = model(x, lam + 0.1)
        loss = cross_entropy(cls, lab[:, 0]) + cross_entropy(d, lab[:, 1])
        opt.zero_grad()
        loss.backward()
        opt.step()
