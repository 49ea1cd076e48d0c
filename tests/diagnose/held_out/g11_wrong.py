"""wrong: ordinary BatchNorm2d under DDP normalises with the mean and variance of the rank's shard, so activations and gradients differ from those of the whole minibatch.

cause: batch normalisation uses statistics of the local shard instead of the whole minibatch
cure: convert with nn.SyncBatchNorm.convert_sync_batchnorm(net) before DDP, or use GroupNorm
line: self.bn1 = nn.BatchNorm2d(planes)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(110)
X = torch.randn(96, 3, 6, 6) * 2 + 0.5
y = torch.randint(0, 4, (96,))


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1)
        self.shortcut = nn.Conv2d(in_planes, planes, 1) if in_planes != planes else nn.Identity()

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.conv2(out) + self.shortcut(x))


def make_net():
    return nn.Sequential(
        BasicBlock(3, 8),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 9, 4),
    )


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()
    for inputs, targets in batches:
        opt.zero_grad()
        criterion(model(inputs), targets).backward()
        opt.step()
