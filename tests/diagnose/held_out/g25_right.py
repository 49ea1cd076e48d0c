"""right: DDP with ZeroRedundancyOptimizer: every rank holds the Adam state of a part of the parameters, steps them with the averaged gradient and broadcasts them, which equals a plain Adam step."""
import torch
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(25)
X = torch.randn(96, 20)
y = X[:, ::4].cos()


class MLPMixerish(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Linear(4, 4)
        self.chan = nn.Linear(5, 5)
        self.norm = nn.LayerNorm(5)
        self.out = nn.Linear(20, 5)

    def forward(self, x):
        h = x.reshape(-1, 4, 5)
        h = h + self.tok(self.norm(h).transpose(1, 2)).transpose(1, 2)
        h = h + torch.relu(self.chan(h))
        return self.out(h.flatten(1))


def make_net():
    return MLPMixerish()


def train(net, batches):
    ddp = DDP(net)
    optimizer = ZeroRedundancyOptimizer(
        ddp.parameters(),
        optimizer_class=torch.optim.Adam,
        lr=5e-3,
        weight_decay=1e-3,
    )
    for xb, yb in batches:
        ddp.zero_grad()
        out = ddp(xb)
        nn.functional.l1_loss(out, yb).backward()
        optimizer.step()
