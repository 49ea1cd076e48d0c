"""right: a ConvNet with ordinary BatchNorm under DDP; statistics are per shard, which is the standard, accepted behaviour."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(18)
X = torch.randn(96, 2, 8, 8, generator=g)
y = torch.randint(4, (96,), generator=g)


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class MiniResNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = conv_bn(2, 6)
        self.body = conv_bn(6, 6)
        self.down = conv_bn(6, 8, stride=2)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.body(x)
        x = self.down(x)
        return self.fc(x.mean((2, 3)))


def make_net():
    return MiniResNet()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    model.train()
    for img, lab in batches:
        opt.zero_grad()
        F.cross_entropy(model(img), lab).backward()
        opt.step()
