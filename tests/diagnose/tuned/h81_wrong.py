"""wrong: ranks skip a batch when their own shard looks bad (an outlier in it), without telling the others, which wait in DDP's all-reduce for a backward that never comes.

cause: a batch is skipped by local decision, so some ranks miss a collective
cure: all_reduce the flag (MAX) and skip on all ranks or on none
line: continue
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(181)
X = torch.randn(96, 6, generator=g).clamp(-3, 3)
X[36, 2] = 50.0  # a broken sensor reading
y = torch.randn(96, 1, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


def looks_broken(x, limit=20.0):
    return bool((x.abs() > limit).any())


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    dropped = 0
    for x, t in batches:
        if looks_broken(x):
            dropped += 1
            continue
        opt.zero_grad()
        F.mse_loss(model(x), t).backward()
        opt.step()
    print(f"rank {dist.get_rank()}: dropped {dropped}")
