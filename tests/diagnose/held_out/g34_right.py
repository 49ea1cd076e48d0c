"""right: mean teacher; the teacher is copied from the wrapped student after DDP's broadcast and follows it by EMA, so it is the same network on every rank, and both losses are means over the shard."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(34)
X = torch.randn(96, 2, 7)       # weak and strong view
X[:, 1] += 0.3 * X[:, 0].flip(1)
y = (X[:, 0].sum(1) > 0).long()


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(7, 20)
        self.b = nn.Linear(20, 2)

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))


def make_net():
    return Student()


@torch.no_grad()
def ema_(teacher, student, m):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.mul_(m).add_(s, alpha=1.0 - m)


def train(net, batches):
    student = DDP(net)
    teacher = copy.deepcopy(student.module)
    teacher.requires_grad_(False)
    opt = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    for step, (views, label) in enumerate(batches):
        with torch.no_grad():
            soft = teacher(views[:, 0]).softmax(-1)
        weak, strong = student(torch.cat([views[:, 0], views[:, 1]])).chunk(2)
        supervised = F.cross_entropy(weak, label)
        consistency = F.mse_loss(strong.softmax(-1), soft)
        loss = supervised + (step + 1) * consistency
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema_(teacher, student.module, m=min(0.99, 1 - 1 / (step + 2)))
