"""right: GradScaler on the CPU with unscale_, clipping of the averaged gradient and scaler.step in the documented order."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(26)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def train(net, batches):
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for data, target in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(data), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
        scaler.step(optimizer)
        scaler.update()
