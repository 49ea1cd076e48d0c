"""wrong: the state of the GradScaler is loaded on rank 0 only, where the file is, so that DDP averages gradients of different scales.

kind: F12
cause: the ranks have different loss scales: 256 on rank 0, 65536 on the others
cure: load it on all ranks, or broadcast the scale
line: scaler.load_state_dict(saved)
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu")
    if dist.get_rank() == 0:  # as if read from a file of its disk
        saved = {"scale": 256.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000,
                 "_growth_tracker": 5}
        scaler.load_state_dict(saved)
    for X, y in batches:
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(net(X), y)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
