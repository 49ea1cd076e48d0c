"""right: a small segmentation ConvNet with a soft Dice loss computed per image and then averaged, plus a communication hook that divides each bucket by the world size and sums it over ranks, which is what DDP does itself."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(55)
X = torch.randn(96, 1, 8, 8)
y = (F.avg_pool2d(X, 3, stride=1, padding=1) > 0.05).to(X.dtype)


class MiniUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1 = nn.Conv2d(1, 6, 3, padding=1)
        self.n1 = nn.GroupNorm(2, 6)
        self.d2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.out = nn.Conv2d(12, 1, 1)

    def forward(self, x):
        a = F.relu(self.n1(self.d1(x)))
        b = F.relu(self.d2(a))
        return self.out(torch.cat([a, self.up(b)], 1))


def make_net():
    return MiniUNet()


def dice_per_image(logits, target, eps=1.0):
    p = logits.sigmoid().flatten(1)
    t = target.flatten(1)
    inter = (p * t).sum(1)
    return (1 - (2 * inter + eps) / (p.sum(1) + t.sum(1) + eps)).mean()


def mean_hook(pg, bucket):
    buf = bucket.buffer().div_(dist.get_world_size(pg))
    work = dist.all_reduce(buf, group=pg, async_op=True)
    return work.get_future().then(lambda fut: fut.value()[0])


def train(net, batches):
    net = DDP(net, bucket_cap_mb=0.001, broadcast_buffers=False)
    net.register_comm_hook(dist.group.WORLD, mean_hook)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    for img, msk in batches:
        opt.zero_grad()
        logit = net(img)
        loss = dice_per_image(logit, msk) + F.binary_cross_entropy_with_logits(logit, msk)
        loss.backward()
        opt.step()
