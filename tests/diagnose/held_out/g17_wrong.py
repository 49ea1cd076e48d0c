"""wrong: the data loss is divided by the world size because gradients are summed over ranks, but the regulariser added to it is not, so after the sum it counts world-size times.

cause: regularisation term is added on every rank without dividing by world_size while gradients are summed
cure: divide the whole loss (data + regulariser) by the world size
line: loss = data_loss / world + LAMBDA * sparsity(net)
"""
import torch
import torch.distributed as dist
import torch.nn as nn

torch.manual_seed(171)
X = torch.randn(96, 16)
y = X[:, 3:4] - 2 * X[:, 7:8]
LAMBDA = 0.02


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.ones(16))
        self.mlp = nn.Sequential(nn.Linear(16, 10), nn.ReLU(), nn.Linear(10, 1))

    def forward(self, x):
        return self.mlp(x * self.gate)


def make_net():
    return Gated()


def sparsity(net):
    return net.gate.abs().sum() + net.mlp[0].weight.norm(dim=0).sum()


def train(net, batches):
    world = dist.get_world_size()
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for xb, yb in batches:
        opt.zero_grad()
        data_loss = (net(xb) - yb).pow(2).mean()
        loss = data_loss / world + LAMBDA * sparsity(net)
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)      # SUM
        opt.step()
