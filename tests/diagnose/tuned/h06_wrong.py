"""wrong: the blow-up guard looks at the rank's own loss and leaves the loop, so one rank stops while the others go on and wait for it in the next all-reduce.

cause: ranks decide on early stopping by their local loss
cure: all_reduce the loss (or a stop flag) and let all ranks take the same decision
line: if loss.item() > self.limit:
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(106)
X = torch.randn(96, 4, generator=g)
y = 0.3 * torch.randn(96, 1, generator=g)
y[torch.arange(96) % 6 == 0] += 4.0  # some targets are far out


def make_net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


class BlowUpGuard:
    def __init__(self, limit):
        self.limit = limit

    def tripped(self, loss):
        if loss.item() > self.limit:
            print("loss too large, stopping")
            return True
        return False


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    guard = BlowUpGuard(limit=3.7)
    for x, t in batches:
        loss = F.mse_loss(model(x), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if guard.tripped(loss):
            break
