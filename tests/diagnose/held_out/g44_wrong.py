"""wrong: each rank steps Adam with its own gradient and the weights are averaged afterwards; Adam is not linear in the gradient, so the mean of the updates is not the update of the mean gradient.

cause: weights are averaged after the step instead of gradients before it
cure: all_reduce and average the gradients before opt.step()
line: average_weights(net)
"""
import torch
import torch.distributed as dist
import torch.nn as nn

torch.manual_seed(440)
X = torch.randn(96, 2, 9)
y = torch.stack([(X[:, 0] * X[:, 1]).sum(1), X.pow(2).sum((1, 2)) / 9], dim=1)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 10))
        self.cmp = nn.Linear(20, 2)

    def forward(self, pair):
        a, b = self.enc(pair[:, 0]), self.enc(pair[:, 1])
        return self.cmp(torch.cat([a * b, (a - b).abs()], dim=1))


def make_net():
    return Siamese()


@torch.no_grad()
def average_weights(net):
    for p in net.parameters():
        dist.all_reduce(p)
        p.div_(dist.get_world_size())


def train(net, batches):
    with torch.no_grad():
        for p in net.parameters():
            dist.broadcast(p, src=0)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for pair, target in batches:
        opt.zero_grad()
        loss = nn.functional.huber_loss(net(pair), target)
        loss.backward()
        opt.step()
        average_weights(net)
