"""REINFORCE on a small bandit-like world; each process plays its own episodes, gradients are averaged by hand."""
import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.multiprocessing import Process, set_start_method


class Corridor:
    """walk to the right end of a corridor of 6 cells"""

    def reset(self, gen):
        self.pos = int(torch.randint(0, 4, (1,), generator=gen))
        return self.obs()

    def obs(self):
        o = torch.zeros(6)
        o[self.pos] = 1
        return o

    def step(self, a):
        self.pos = min(5, max(0, self.pos + (1 if a == 1 else -1)))
        return self.obs(), (1.0 if self.pos == 5 else -0.1), self.pos == 5


def play(policy, env, gen, horizon=12):
    logps, rewards, o = [], [], env.reset(gen)
    for _ in range(horizon):
        d = torch.distributions.Categorical(logits=policy(o))
        a = d.sample()
        o, r, done = env.step(a.item())
        logps.append(d.log_prob(a))
        rewards.append(r)
        if done:
            break
    ret = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    return torch.stack(logps), ret


def run(rank, size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(2024)
    policy = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
    opt = torch.optim.Adam(policy.parameters(), lr=0.02)
    torch.manual_seed(2024 + 1 + rank)
    gen = torch.Generator().manual_seed(rank)
    env = Corridor()
    for it in range(20):
        losses = []
        for _ in range(4):
            lp, ret = play(policy, env, gen)
            losses.append(-(lp * ret).sum())
        loss = torch.stack(losses).mean()
        opt.zero_grad()
        loss.backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad.div_(size)
        opt.step()
        if rank == 0 and it % 5 == 0:
            print("iteration", it, "return", ret[0].item())
    dist.destroy_process_group()


if __name__ == "__main__":
    set_start_method("spawn")
    with socket.socket() as s:
        s.bind(("", 0))
        port = s.getsockname()[1]
    procs = [Process(target=run, args=(r, 2, port)) for r in range(2)]
    [p.start() for p in procs]
    [p.join() for p in procs]
