# Bayesian regression with SGLD: the optimizer adds gaussian noise to every step
import math
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class SGLD(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, temperature=1e-3, prior=1e-2):
        super().__init__(params, dict(lr=lr, temperature=temperature, prior=prior))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                d = p.grad + g["prior"] * p
                p.add_(d, alpha=-g["lr"])
                p.add_(torch.randn_like(p), alpha=math.sqrt(2 * g["lr"] * g["temperature"]))


def toy(n=180):
    g = torch.Generator().manual_seed(2)
    x = torch.rand(n, 1, generator=g) * 6 - 3
    return x, torch.sin(x) + 0.1 * torch.randn(n, 1, generator=g)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(10 + rank)
    ds = TensorDataset(*toy())
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=15, sampler=sampler)
    net = DDP(nn.Sequential(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 1)))
    opt = SGLD(net.parameters(), lr=0.05)
    samples = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            opt.step()
        with torch.no_grad():
            samples.append(net.module(torch.linspace(-3, 3, 7)[:, None]))
        if rank == 0:
            print("epoch", epoch, "loss", loss.item(), "spread", torch.stack(samples).std(0, unbiased=False).mean().item())
    dist.destroy_process_group()
