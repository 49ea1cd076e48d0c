"""wrong: PPO normalises advantages with the mean and standard deviation of the rank's own shard, so the same sample gets another advantage than on the single device.

cause: advantage normalisation uses local batch statistics
cure: all_reduce sum, square sum and count of the advantages and normalise with the global mean and std
line: adv = (adv - adv.mean()) / (adv.std() + 1e-8)
"""
import torch
import torch.nn as nn
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel as DDP

ACTIONS = 3
torch.manual_seed(350)
X = torch.randn(96, 6)
# action, old log-prob, advantage, return
y = torch.stack([
    torch.randint(0, ACTIONS, (96,)).to(X.dtype),
    -1.1 + 0.1 * torch.randn(96),
    torch.randn(96) * 3 + 1,
    torch.randn(96),
], dim=1)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.Tanh())
        self.pi = nn.Linear(32, ACTIONS)
        self.v = nn.Linear(32, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


def make_net():
    return ActorCritic()


def train(net, batches, clip=0.2, vf=0.5, ent=0.01):
    agent = DDP(net)
    opt = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
    for obs, info in batches:
        act, old_logp, adv, ret = info.unbind(1)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        logits, value = agent(obs)
        dist_ = Categorical(logits=logits)
        ratio = (dist_.log_prob(act.long()) - old_logp).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
        loss = pg + vf * (value - ret).pow(2).mean() - ent * dist_.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
