"""right: actor and critic have a wrapper and an optimizer each, and the gradient of the temperature, which is in neither, is averaged by hand."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.critic = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        self.log_alpha = nn.Parameter(torch.zeros(()))


def make_net():
    return Agent()


def train(net, batches):
    actor, critic = DDP(net.actor), DDP(net.critic)
    for_critic, for_actor = torch.optim.Adam(critic.parameters(), 0.01), torch.optim.Adam(actor.parameters(), 0.01)
    for_alpha = torch.optim.SGD([net.log_alpha], 0.1)
    for X, y in batches:
        for_critic.zero_grad()
        F.mse_loss(critic(X)[:, 0], X[:, 0] + (y == 2)).backward()
        for_critic.step()
        for_actor.zero_grad()
        log_prob = actor(X).log_softmax(1)
        entropy = -(log_prob.exp() * log_prob).sum(1)
        (F.nll_loss(log_prob, y) - net.log_alpha.exp().detach() * entropy.mean()).backward()
        for_actor.step()
        for_alpha.zero_grad()
        (net.log_alpha.exp() * (entropy.detach() - 1.2)).mean().backward()
        dist.all_reduce(net.log_alpha.grad)
        net.log_alpha.grad /= dist.get_world_size()
        for_alpha.step()
