"""wrong: rank 0 runs a sanity check with a forward and backward through the DDP wrapper before the loop; the others do not, so the reductions are out of step from then on and the last one hangs.

cause: an extra forward/backward through DDP on rank 0 only
cure: run the check on all ranks, or on model.module without DDP
line: overfit_check(model, batches[0])
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(170)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def overfit_check(model, batch):
    x, y = batch
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    bad = [n for n, p in model.named_parameters() if p.grad is None]
    assert not bad, f"no gradient for {bad}"
    model.zero_grad()


def train(net, batches):
    model = DDP(net)
    if dist.get_rank() == 0:
        overfit_check(model, batches[0])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
