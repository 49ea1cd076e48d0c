"""Gradient accumulation with DDP: one exchange for every few micro-batches."""
import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=4)
parser.add_argument("--micro-batch", type=int, default=8)
args = parser.parse_args()

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
g = torch.Generator().manual_seed(77)
images = torch.randn(96, 1, 6, 6, generator=g)
labels = images.flatten(1)[:, :4].argmax(1)
dataset = TensorDataset(images, labels)
sampler = DistributedSampler(dataset, shuffle=True, seed=1)
loader = DataLoader(dataset, batch_size=args.micro_batch, sampler=sampler)

torch.manual_seed(78)
model = DDP(nn.Sequential(nn.Conv2d(1, 8, 3), nn.ELU(), nn.Flatten(), nn.Linear(128, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
criterion = nn.CrossEntropyLoss()


def window(i, total, k):
    end = min((i // k + 1) * k, total)
    return end - (i // k) * k, i + 1 == end


for epoch in range(3):
    sampler.set_epoch(epoch)
    optimizer.zero_grad()
    updates = 0
    for i, (x, y) in enumerate(loader):
        size, last = window(i, len(loader), args.accumulate)
        with contextlib.nullcontext() if last else model.no_sync():
            loss = criterion(model(x), y) / size
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    if rank == 0:
        print(f"epoch {epoch}: {updates} updates, loss {loss.item() * size:.4f}")
dist.destroy_process_group()
