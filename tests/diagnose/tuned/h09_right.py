"""right: the backbone is frozen before wrapping, so the reducer holds the head only and nothing goes unused."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(9)
X = torch.randn(96, 1, 6, 6, generator=g)
y = torch.randint(3, (96,), generator=g)


class FineTune(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        with torch.no_grad():
            feats = self.backbone(x)
        return self.head(feats)


def make_net():
    return FineTune()


def freeze(module):
    for p in module.parameters():
        p.requires_grad = False
    return module.eval()


def train(net, batches):
    freeze(net.backbone)
    model = DDP(net)
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.SGD(trainable, lr=0.5, momentum=0.9, weight_decay=1e-4)
    loss_fn = nn.CrossEntropyLoss()
    for images, labels in batches:
        opt.zero_grad()
        loss_fn(model(images), labels).backward()
        opt.step()
