"""wrong: the Gaussian likelihood is summed over the examples of the shard while DDP divides gradients by the number of ranks, so the gradient is too small by the factor world size.

cause: loss is a sum over the batch, but DDP averages gradients over ranks, so the gradient is 1/world_size of the single-device gradient
cure: use the mean over examples (nll.mean()), or multiply the summed loss by the world size
line: loss = nll.sum()
"""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(1)
X = torch.linspace(-2, 2, 96)[torch.randperm(96)].unsqueeze(1)
y = X.sin() + 0.1 * (1 + X.abs()) * torch.randn(96, 1)


class HeteroNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh())
        self.mu = nn.Linear(20, 1)
        self.log_sigma = nn.Linear(20, 1)

    def forward(self, x):
        h = self.body(x)
        return self.mu(h), self.log_sigma(h).clamp(-3, 3)


def make_net():
    return HeteroNet()


def train(net, batches):
    net = DDP(net)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    for x, t in batches:
        mu, log_sigma = net(x)
        nll = 0.5 * ((t - mu) / log_sigma.exp()) ** 2 + log_sigma
        loss = nll.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
