"""wrong: the gradient is all-reduced after every micro-batch while p.grad keeps accumulating, so the sum of the earlier micro-batches is summed over ranks again and again, and one division at the end does not undo that.

cause: all_reduce inside the accumulation loop reduces already reduced gradients again
cure: all_reduce once after the last micro-batch
line: dist.all_reduce(p.grad)
"""
import torch
import torch.distributed as dist
import torch.nn as nn

torch.manual_seed(380)
X = torch.randn(96, 10)
y = torch.randint(0, 3, (96,))
STEPS = 2


def make_net():
    return nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.LayerNorm(20), nn.Linear(20, 3))


def sync(module):
    for p in module.parameters():
        dist.all_reduce(p.grad)


def train(net, batches):
    world = dist.get_world_size()
    [dist.broadcast(p.data, src=0) for p in net.parameters()]
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    ce = nn.CrossEntropyLoss(reduction="sum")
    for x, t in batches:
        opt.zero_grad()
        for mx, mt in zip(x.tensor_split(STEPS), t.tensor_split(STEPS)):
            loss = ce(net(mx), mt) / x.size(0)
            loss.backward()
            sync(net)
        for p in net.parameters():
            p.grad /= world
        opt.step()
