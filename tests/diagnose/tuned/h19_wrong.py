"""wrong: the network keeps an old projection layer that forward never uses; without find_unused_parameters DDP's reduction does not finish and the second iteration fails.

cause: unused parameters (an idle layer) without find_unused_parameters
cure: delete the idle layer, or freeze it before wrapping, or pass find_unused_parameters=True
line: self.old_proj = nn.Linear(16, 16)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(119)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 16)
        self.old_proj = nn.Linear(16, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return self.fc2(x)


def make_net():
    return Encoder()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in batches:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
