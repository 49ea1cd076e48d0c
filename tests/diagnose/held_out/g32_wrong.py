"""wrong: gradients are summed with dist.reduce to rank 0 only; the other ranks step with what is left in their own buffers, so the replicas drift apart.

cause: dist.reduce delivers the gradient to rank 0 only, the other ranks do not get it
cure: use dist.all_reduce (or broadcast p.grad from rank 0 after the reduce)
line: dist.reduce(p.grad, dst=0, op=dist.ReduceOp.SUM)
"""
import torch
import torch.distributed as dist
import torch.nn as nn

torch.manual_seed(320)
X = torch.randn(96, 9)
y = torch.randint(0, 2, (96,)) * 2 - 1


class SVMish(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(9, 15)
        self.score = nn.Linear(15, 1)

    def forward(self, x):
        return self.score(torch.tanh(self.hidden(x)))[:, 0]


def make_net():
    return SVMish()


class Trainer:
    def __init__(self, net):
        self.net = net
        self.world = dist.get_world_size()
        with torch.no_grad():
            for p in net.parameters():
                dist.broadcast(p, src=0)
        self.opt = torch.optim.SGD(net.parameters(), lr=0.2)

    def collect(self):
        for p in self.net.parameters():
            p.grad /= self.world
            dist.reduce(p.grad, dst=0, op=dist.ReduceOp.SUM)

    def fit_batch(self, x, sign):
        self.opt.zero_grad()
        margin = 1 - sign * self.net(x)
        loss = nn.functional.softplus(margin).mean()
        loss.backward()
        self.collect()
        self.opt.step()
        return loss.item()


def train(net, batches):
    t = Trainer(net)
    return [t.fit_batch(x, s) for x, s in batches]
