"""right: steps with a loss spike are skipped, and the ranks decide that together on the loss averaged over ranks; a corrupted example therefore makes all ranks (and the single device) skip the same step."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(290)
X = torch.randn(96, 6)
y = X @ torch.randn(6, 1) + 0.1 * torch.randn(96, 1)
y[40] = 500.0  # a broken label

SPIKE = 100.0


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))


def global_mean(t):
    t = t.detach().clone()
    dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return (t / dist.get_world_size()).item()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    skipped = 0
    for xb, yb in batches:
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(xb), yb)
        loss.backward()
        if global_mean(loss) > SPIKE:
            skipped += 1
            opt.zero_grad()
            continue
        opt.step()
    if dist.get_rank() == 0 and skipped:
        print(f"skipped {skipped} step(s)")
