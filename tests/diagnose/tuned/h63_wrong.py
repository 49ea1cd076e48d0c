"""wrong: DDP is given a subgroup of one rank (GPUS_PER_NODE was left at 1), so every rank synchronises with itself only.

cause: wrong process group: each rank sits in a group of its own
cure: use the default group, DDP(net), or the right group size
line: node_group, _ = dist.new_subgroups(group_size=GPUS_PER_NODE)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

GPUS_PER_NODE = 1

g = torch.Generator().manual_seed(163)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def train(net, batches):
    node_group, _ = dist.new_subgroups(group_size=GPUS_PER_NODE)
    model = DDP(net, process_group=node_group)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y in batches:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    dist.barrier()
