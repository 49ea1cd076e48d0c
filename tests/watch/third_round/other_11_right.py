"""Gaussian policy with a value baseline on one-step tasks; observations are whitened on the fly."""
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Whiten(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("n", torch.tensor(1e-2))
        self.register_buffer("s1", torch.zeros(dim))
        self.register_buffer("s2", torch.full((dim,), 1e-2))

    @torch.no_grad()
    def see(self, obs):
        part = torch.cat([obs.sum(0), obs.pow(2).sum(0), torch.tensor([float(len(obs))])])
        dist.all_reduce(part)
        d = obs.shape[1]
        self.s1 += part[:d]
        self.s2 += part[d:2 * d]
        self.n += part[-1]

    def forward(self, obs):
        mean = self.s1 / self.n
        var = (self.s2 / self.n - mean ** 2).clamp_min(1e-4)
        return (obs - mean) / var.sqrt()


class Agent(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.whiten = Whiten(dim)
        self.body = nn.Sequential(nn.Linear(dim, 32), nn.Tanh())
        self.mean, self.value = nn.Linear(32, 2), nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def forward(self, obs):
        h = self.body(self.whiten(obs))
        return torch.distributions.Normal(self.mean(h), self.log_std.exp()), self.value(h).squeeze(1)


def average_gradients(module, world):
    flat = torch.cat([p.grad.flatten() for p in module.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in module.parameters():
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
g = torch.Generator().manual_seed(12)
observations = torch.randn(128, 6, generator=g) * torch.tensor([1., 5., .2, 3., 1., 10.]) + 4
goals = torch.tanh(torch.randn(128, 2, generator=g) * 0.1 + observations[:, :2] / 5)
tasks = TensorDataset(observations, goals)
sampler = DistributedSampler(tasks, shuffle=True)
loader = DataLoader(tasks, batch_size=8, sampler=sampler)
torch.manual_seed(0)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
torch.manual_seed(50 + rank)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for obs, goal in loader:
        agent.whiten.see(obs)
        policy, value = agent(obs)
        action = policy.sample()
        reward = -(action - goal).pow(2).sum(1)
        gain = reward - value.detach()
        loss = -(policy.log_prob(action).sum(1) * gain).mean() + 0.5 * (value - reward).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(agent, world)
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch} reward {reward.mean().item():.3f}")
dist.destroy_process_group()
