"""wrong: the box loss is divided by the number of boxes of all ranks, but DDP divides by the world size once more, so the box gradients are too small by the factor world size.

cause: normaliser is the global count, but DDP averages again, so the box loss shrinks by 1/world_size
cure: divide the reduced count by the world size: num_boxes = num_boxes / dist.get_world_size()
line: num_boxes = num_boxes.clamp(min=1)
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

GRID = 5
torch.manual_seed(180)
X = torch.randn(96, 2, GRID, GRID)
obj = (torch.rand(96, 1, GRID, GRID) < 0.3).to(X.dtype)
off = torch.rand(96, 2, GRID, GRID) * obj
y = torch.cat([obj, off], 1)


class CenterNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.ReLU())
        self.heat = nn.Conv2d(12, 1, 1)
        self.offset = nn.Conv2d(12, 2, 1)

    def forward(self, x):
        f = self.stem(x)
        return self.heat(f), self.offset(f)


def make_net():
    return CenterNetish()


def criterion(heat, offset, target):
    mask = target[:, :1]
    num_boxes = mask.sum()
    dist.all_reduce(num_boxes)
    num_boxes = num_boxes.clamp(min=1)
    l_off = (F.l1_loss(offset, target[:, 1:], reduction="none") * mask).sum() / num_boxes
    l_heat = F.binary_cross_entropy_with_logits(heat, mask)
    return l_heat + l_off


def train(net, batches):
    net = DDP(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for x, target in batches:
        opt.zero_grad()
        criterion(*net(x), target).backward()
        opt.step()
