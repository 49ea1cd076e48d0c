"""wrong: hand-written synchronisation sums the gradients of mean losses and never divides, so the step is k times too large.

cause: all_reduce SUM without dividing by the world size
cure: divide every gradient by dist.get_world_size() after the all_reduce
line: dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(102)
X = torch.randn(96, 1, 6, 6, generator=g)
y = torch.randint(5, (96,), generator=g)


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc = nn.Linear(6 * 4, 5)

    def forward(self, x):
        return self.fc(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1))


def make_net():
    return SmallCNN()


def sync_params(model):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)


def sync_grads(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)


def train(net, batches):
    sync_params(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for img, label in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(img), label).backward()
        sync_grads(net)
        optimizer.step()
