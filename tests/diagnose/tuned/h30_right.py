"""right: a critic with a gradient penalty: autograd.grad with respect to the inputs only (create_graph), then one backward of the sum, so every parameter's hook fires once with the whole gradient."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(31)
X = torch.randn(96, 5, generator=g)
y = torch.randint(2, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 1))


def gradient_penalty(score, inputs):
    (grad,) = torch.autograd.grad(score.sum(), inputs, create_graph=True)
    return (grad.pow(2).sum(1).add(1e-12).sqrt() - 1).pow(2).mean()


def train(net, batches):
    critic = DDP(net)
    opt = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
    for data, real in batches:
        inputs = data.detach().clone().requires_grad_(True)
        score = critic(inputs).squeeze(-1)
        sign = 1.0 - 2.0 * real.to(score.dtype)
        loss = F.softplus(sign * score).mean() + 10.0 * gradient_penalty(score, inputs)
        opt.zero_grad()
        loss.backward()
        opt.step()
