"""right: clipping by norm after DDP's averaging, Adam, and a cosine schedule that depends on the step alone."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import CosineAnnealingLR

g = torch.Generator().manual_seed(6)
X = 3 * torch.randn(96, 10, generator=g)
y = torch.randn(96, 1, generator=g)

MAX_NORM = 0.25


def make_net():
    return nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))


def train_one_epoch(model, loader, optimizer, scheduler):
    model.train()
    history = []
    for data, target in loader:
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(model(data), target)
        loss.backward()
        total_norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        history.append(float(total_norm))
        optimizer.step()
        scheduler.step()
    return history


def train(net, batches):
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.95))
    scheduler = CosineAnnealingLR(optimizer, T_max=len(batches))
    return train_one_epoch(model, batches, optimizer, scheduler)
