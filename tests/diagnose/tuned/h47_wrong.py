"""wrong: the checkpoint is loaded on rank 0 only, after DDP's initial broadcast, so rank 0 goes on from other weights than the rest.

cause: checkpoint loaded on rank 0 only after wrapping
cure: load on every rank, or load on rank 0 before DDP(net) so the broadcast spreads it
line: model.module.load_state_dict(pretrained(model.module))
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(147)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def pretrained(net):
    """In the real script: torch.load("last.pt")["model"]."""
    return {
        k: 0.25 * torch.cos(torch.arange(v.numel(), dtype=v.dtype) + len(k)).view_as(v)
        for k, v in net.state_dict().items()
    }


def resume(model):
    if dist.get_rank() == 0:
        model.module.load_state_dict(pretrained(model.module))
        print("resumed")
    dist.barrier()


def train(net, batches):
    model = DDP(net)
    resume(model)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
