"""right: tilted (log-mean-exp) risk over the whole minibatch: every example's weight is its softmax share over all ranks, computed without gradient from reduced maximum and sum, and the factor world size undoes DDP's division."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(43)
X = torch.randn(96, 8)
y = (X[:, 0] + 0.5 * X[:, 1] ** 2 > 0.4).long()
y[::7] = 1 - y[::7]
TILT = 2.0


def make_net():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


@torch.no_grad()
def tilted_weights(per_example):
    """softmax(TILT * loss) over the union of all shards; returns the local slice."""
    scaled = TILT * per_example
    peak = scaled.max()
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    e = torch.exp(scaled - peak)
    z = e.sum()
    dist.all_reduce(z)
    return e / z


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    world = dist.get_world_size()
    for xb, yb in batches:
        per_example = F.cross_entropy(model(xb), yb, reduction="none")
        w = tilted_weights(per_example.detach())
        # d/dtheta (1/t) log mean exp(t l_i) = sum_i w_i dl_i/dtheta
        surrogate = world * (w * per_example).sum()
        opt.zero_grad()
        surrogate.backward()
        opt.step()
