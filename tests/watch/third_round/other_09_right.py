"""Masked autoencoding of short patch sequences with a tiny transformer."""
import argparse
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def set_seed(value):
    random.seed(value)
    torch.manual_seed(value)


class MaskedModel(nn.Module):
    def __init__(self, patch=6, dim=16, length=10, ratio=0.5):
        super().__init__()
        self.ratio = ratio
        self.lift = nn.Linear(patch, dim)
        self.blank = nn.Parameter(torch.zeros(dim))
        self.place = nn.Parameter(0.02 * torch.randn(length, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 32, dropout=0.1, batch_first=True)
        self.trunk = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.back = nn.Linear(dim, patch)

    def forward(self, patches):
        hidden = torch.rand(patches.shape[:2]) < self.ratio
        tokens = torch.where(hidden[..., None], self.blank, self.lift(patches)) + self.place
        error = (self.back(self.trunk(tokens)) - patches).pow(2).mean(-1)
        return (error * hidden).mean() / self.ratio


parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=100)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
set_seed(args.seed + rank)

g = torch.Generator().manual_seed(9)
walk = torch.randn(96, 60, generator=g).cumsum(1).div(5).view(96, 10, 6)
dataset = TensorDataset(walk)
sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True, drop_last=True)
loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)

model = DDP(MaskedModel())
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.95))
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    model.train()
    for (patches,) in loader:
        loss = model(patches)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch}: {loss.item():.4f}")
dist.destroy_process_group()
