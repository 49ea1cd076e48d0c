"""wrong: the MoCo queue takes up only the keys of the rank's own shard (and DDP's buffer broadcast then keeps rank 0's), so the negatives from the second step on are not those of the single device.

cause: the queue of negatives is filled with local keys only
cure: all_gather the keys of all ranks before writing them into the queue
line: net_module.enqueue(k)
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(250)
raw = torch.randn(96, 1, 8)
X = torch.cat([raw + 0.1 * torch.randn(96, 1, 8), raw + 0.1 * torch.randn(96, 1, 8)], dim=1)
y = torch.zeros(96)


class MoCo(nn.Module):
    def __init__(self, dim=6, K=72, m=0.95, T=0.2):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, dim))
        self.encoder_k = copy.deepcopy(self.encoder_q)
        self.encoder_k.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(K, dim), dim=1))
        self.ptr = 0

    @torch.no_grad()
    def momentum_update(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data.mul_(self.m).add_(q.data, alpha=1 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        idx = (self.ptr + torch.arange(keys.size(0))) % self.K
        self.queue[idx] = keys
        self.ptr = (self.ptr + keys.size(0)) % self.K

    def forward(self, x):
        q = F.normalize(self.encoder_q(x[:, 0]), dim=1)
        with torch.no_grad():
            self.momentum_update()
            k = F.normalize(self.encoder_k(x[:, 1]), dim=1)
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().t()
        return torch.cat([pos, neg], 1) / self.T, k


def make_net():
    return MoCo()


def train(net, batches):
    model = DDP(net)
    net_module = model.module
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    for pair, _ in batches:
        logits, k = model(pair)
        loss = F.cross_entropy(logits, torch.zeros(len(pair), dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        net_module.enqueue(k)
