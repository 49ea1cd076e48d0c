import os
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

# synchronous advantage actor critic on a contextual bandit; every worker has an environment of its own


class Bandit:
    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        self.W = np.random.RandomState(0).randn(4, 3)

    def contexts(self, n):
        self.s = self.rng.randn(n, 4).astype("float32")
        return torch.from_numpy(self.s)

    def reward(self, actions):
        q = self.s @ self.W
        return torch.from_numpy(q[np.arange(len(q)), actions.numpy()].astype("float32"))


def average_gradients(module):
    size = float(dist.get_world_size())
    for p in module.parameters():
        dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)
        p.grad.data /= size


def sync_params(module):
    for p in module.parameters():
        dist.broadcast(p.data, src=0)


def run():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    env = Bandit(seed=1000 + rank)
    actor = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 3))
    critic = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 1))
    sync_params(actor)
    sync_params(critic)
    pi_opt = torch.optim.Adam(actor.parameters(), lr=3e-3)
    vf_opt = torch.optim.Adam(critic.parameters(), lr=1e-2)
    for update in range(40):
        s = env.contexts(32)
        d = torch.distributions.Categorical(logits=actor(s))
        a = d.sample()
        r = env.reward(a)
        v = critic(s).squeeze(-1)
        adv = (r - v).detach()
        pi_loss = -(d.log_prob(a) * adv).mean() - 0.01 * d.entropy().mean()
        vf_loss = 0.5 * (v - r).pow(2).mean()

        pi_opt.zero_grad()
        pi_loss.backward()
        average_gradients(actor)
        pi_opt.step()

        vf_opt.zero_grad()
        vf_loss.backward()
        average_gradients(critic)
        torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        vf_opt.step()

        mean_r = r.mean()
        dist.all_reduce(mean_r)
        if update % 10 == 9 and rank == 0:
            print("update", update, "return", mean_r.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
