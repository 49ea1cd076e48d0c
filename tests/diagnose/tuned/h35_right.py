"""right: LBFGS with strong-Wolfe line search whose closure returns the all-reduced mean loss, so every rank's line search sees the same numbers as the single device."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(36)
X = torch.randn(96, 4, generator=g)
y = torch.sin(X.sum(1, keepdim=True))


def make_net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def global_mean(loss):
    value = loss.detach().clone()
    dist.all_reduce(value, op=dist.ReduceOp.SUM)
    return value / dist.get_world_size()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3, history_size=5, line_search_fn="strong_wolfe")
    for x, t in batches:

        def closure():
            opt.zero_grad()
            loss = F.mse_loss(model(x), t)
            loss.backward()
            return global_mean(loss)

        opt.step(closure)
