"""wrong: rank 0 evaluates after each step and leaves the net in eval mode, where forward divides the logits by a temperature, so rank 0 trains another function than the other ranks.

cause: rank 0 is left in eval mode after validation while the other ranks are in train mode
cure: call net.train() after the evaluation (and evaluate on all ranks alike)
line: model.eval()
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(176)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class Calibrated(nn.Module):
    def __init__(self, temperature=2.0):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
        self.temperature = temperature

    def forward(self, x):
        logits = self.f(x)
        return logits if self.training else logits / self.temperature


def make_net():
    return Calibrated()


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).sum().item() / len(y)


def train(net, batches):
    ddp = DDP(net)
    ddp.train()
    opt = torch.optim.SGD(ddp.parameters(), lr=0.2)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        opt.step()
        if dist.get_rank() == 0:
            print("acc", accuracy(ddp.module, *batches[-1]))
