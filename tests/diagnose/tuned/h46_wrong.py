"""wrong: the weights are re-initialised at random after DDP broadcast them, with each rank's own random state, so the replicas start different.

cause: random re-initialisation after wrapping undoes DDP's initial broadcast
cure: call the initialisation before DDP(net)
line: model.apply(init_weights)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(146)
X = torch.randn(96, 2, 6, 6, generator=g)
y = torch.randint(3, (96,), generator=g)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 6, 3)
        self.conv2 = nn.Conv2d(6, 6, 3)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


def make_net():
    return ConvNet()


def init_weights(m):
    if isinstance(m, (nn.Conv2d, nn.Linear)):
        nn.init.kaiming_normal_(m.weight)
        nn.init.zeros_(m.bias)


def train(net, batches):
    model = DDP(net)
    model.apply(init_weights)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
