"""right: the head in use alternates with the step number (the same on all ranks) and find_unused_parameters=True handles the idle head."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(16)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 2, generator=g)


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.heads = nn.ModuleDict({"depth": nn.Linear(16, 1), "normal": nn.Linear(16, 1)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


def make_net():
    return MultiHead()


def train(net, batches):
    model = DDP(net, find_unused_parameters=True)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    tasks = ["depth", "normal"]
    for it, (x, targets) in enumerate(batches):
        which = it % 2
        pred = model(x, tasks[which])
        loss = F.l1_loss(pred.squeeze(1), targets[:, which])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
