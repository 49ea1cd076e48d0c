"""wrong: the LBFGS closure returns the rank's own loss, so the strong-Wolfe line search takes other step lengths on every rank, replicas part and the numbers of closure calls may differ (hang).

cause: line search decides on the local loss
cure: return the all-reduced mean loss from the closure
line: return loss
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(159)
X = torch.randn(96, 3, generator=g)
y = X.prod(dim=1, keepdim=True) + 0.5 * torch.randn(96, 1, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(3, 10), nn.Tanh(), nn.Linear(10, 1))


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.LBFGS(model.parameters(), lr=5.0, max_iter=4, line_search_fn="strong_wolfe")

    for x, t in batches:
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(model(x), t)
            loss.backward()
            return loss

        opt.step(closure)
