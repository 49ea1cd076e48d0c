"""wrong: the DINO-style loss centres the teacher with a running mean of the rank's own outputs; the centre is never all-reduced, so ranks use different targets.

cause: running centre updated from local batch statistics only
cure: all_reduce the batch sum (and divide by the global count) before updating the centre
line: batch_center = teacher_out.mean(dim=0)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(121)
X = torch.randn(96, 12, generator=g)
y = torch.zeros(96, dtype=torch.long)


class DINOLoss:
    def __init__(self, student_temp=0.1, teacher_temp=0.06, momentum=0.5):
        self.st, self.tt, self.m = student_temp, teacher_temp, momentum
        self.center = 0.0

    def __call__(self, student_out, teacher_out):
        teacher_out = teacher_out.detach()
        q = F.softmax((teacher_out - self.center) / self.tt, dim=-1)
        loss = -(q * F.log_softmax(student_out / self.st, dim=-1)).sum(-1).mean()
        self.update_center(teacher_out)
        return loss

    @torch.no_grad()
    def update_center(self, teacher_out):
        batch_center = teacher_out.mean(dim=0)
        self.center = self.center * self.m + batch_center * (1 - self.m)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 5))


def train(net, batches):
    model = DDP(net)
    dino = DINOLoss()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, _ in batches:
        view1, view2 = x.chunk(2, dim=1)
        s, t = model(torch.cat([view1, view2])).chunk(2)
        loss = dino(s, t)
        opt.zero_grad()
        loss.backward()
        opt.step()
