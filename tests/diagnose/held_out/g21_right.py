"""right: L-BFGS with a line search; the closure returns the loss averaged over ranks (reduced on a detached copy after backward), so all ranks take the decisions of the line search from the same value and gradient."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(210)
X = torch.rand(96, 2) * 4 - 2
y = torch.sin(X[:, :1]) * torch.cos(X[:, 1:])


def make_net():
    return nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1))


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def train(net, batches):
    pinn = DDP(net)
    opt = torch.optim.LBFGS(pinn.parameters(), lr=0.5, max_iter=3, history_size=5, line_search_fn="strong_wolfe")

    for pts, val in batches:

        def closure():
            opt.zero_grad()
            residual = pinn(pts) - val
            loss = residual.square().mean()
            loss.backward()
            return mean_over_ranks(loss)

        opt.step(closure)
