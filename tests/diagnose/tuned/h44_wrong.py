"""wrong: the mean teacher is copied from the net before DDP broadcasts rank 0's weights, so each rank's teacher keeps that rank's own random start and gives other targets.

cause: EMA teacher copied before DDP synchronised the initial weights
cure: build the teacher after DDP(net) (or broadcast its parameters)
line: teacher = Teacher(net)
"""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(144)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class Teacher:
    def __init__(self, net, decay=0.99):
        self.net = copy.deepcopy(net)
        self.net.requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def probs(self, x):
        return self.net(x).softmax(-1)

    @torch.no_grad()
    def follow(self, net):
        for t, s in zip(self.net.parameters(), net.parameters()):
            t.mul_(self.decay).add_(s, alpha=1 - self.decay)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def train(net, batches):
    teacher = Teacher(net)
    student = DDP(net)
    opt = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches:
        logits = student(x)
        consistency = F.mse_loss(logits.softmax(-1), teacher.probs(x))
        loss = F.cross_entropy(logits, y) + 5.0 * consistency
        opt.zero_grad()
        loss.backward()
        opt.step()
        teacher.follow(student.module)
