"""wrong: the entropy temperature log_alpha is a bare parameter outside of DDP; its gradient comes from the rank's own entropies and is not averaged, so ranks drift to different temperatures and then to different policy losses.

cause: log_alpha is not inside the DDP module, so its gradient is not synchronised
cure: all_reduce and average log_alpha.grad before alpha_opt.step(), or make it a parameter of the wrapped net
line: log_alpha = torch.zeros(1, requires_grad=True)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

A = 5
torch.manual_seed(270)
X = torch.randn(96, 7) * 2          # observations
y = torch.randn(96, A)              # critic values Q(s, a)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(7, 24), nn.ReLU(), nn.Linear(24, A))

    def forward(self, obs):
        return F.log_softmax(2.0 * self.net(obs), dim=-1)


def make_net():
    return Policy()


def train(net, batches):
    policy = DDP(net)
    log_alpha = torch.zeros(1, requires_grad=True)
    pi_opt = torch.optim.Adam(policy.parameters(), lr=3e-3)
    alpha_opt = torch.optim.SGD([log_alpha], lr=0.5)
    target_entropy = 0.98 * torch.log(torch.tensor(float(A)))

    for obs, q in batches:
        logp = policy(obs)
        probs = logp.exp()
        alpha = log_alpha.exp().detach()
        pi_loss = (probs * (alpha * logp - q)).sum(-1).mean()
        pi_opt.zero_grad()
        pi_loss.backward()
        pi_opt.step()

        entropy = -(probs * logp).sum(-1).detach()
        alpha_loss = (log_alpha.exp() * (entropy - target_entropy)).mean()
        alpha_opt.zero_grad()
        alpha_loss.backward()
        alpha_opt.step()
