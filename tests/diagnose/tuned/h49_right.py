"""right: a box head is used only on ranks whose shard has positives; find_unused_parameters=True is set and its loss is a sum over positives divided by the fixed shard size, so absent ranks rightly contribute zero."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(50)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 3, generator=g)
y[:, 0] = (torch.arange(96) % 6 == 0).to(y.dtype)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.obj = nn.Linear(16, 1)
        self.box = nn.Linear(16, 2)

    def forward(self, x, positive):
        h = self.trunk(x)
        boxes = self.box(h[positive]) if positive.any() else None
        return self.obj(h).squeeze(-1), boxes


def make_net():
    return Detector()


def train(net, batches):
    model = DDP(net, find_unused_parameters=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, t in batches:
        positive = t[:, 0] > 0.5
        obj, boxes = model(x, positive)
        loss = F.binary_cross_entropy_with_logits(obj, t[:, 0].to(obj.dtype))
        if boxes is not None:
            loss = loss + F.smooth_l1_loss(boxes, t[positive, 1:], reduction="sum") / len(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
