import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

# VAE; the model is compiled after wrapping (backend eager: this box has no triton)


class VAE(nn.Module):
    def __init__(self, d=12, z=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 24), nn.Softplus())
        self.mu, self.lv = nn.Linear(24, z), nn.Linear(24, z)
        self.dec = nn.Sequential(nn.Linear(z, 24), nn.Softplus(), nn.Linear(24, d))

    def forward(self, x, eps):
        h = self.enc(x)
        mu, lv = self.mu(h), self.lv(h)
        return self.dec(mu + eps * torch.exp(0.5 * lv)), mu, lv


def elbo(x, rec, mu, lv, beta):
    recon = ((x - rec) ** 2).sum(1).mean()
    kl = -0.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()
    return recon + beta * kl


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    basis = torch.randn(3, 12)
    x = torch.randn(180, 3) @ basis + 0.05 * torch.randn(180, 12)
    ddp = DDP(VAE())
    model = torch.compile(ddp, backend="eager")
    opt = torch.optim.Adamax(ddp.parameters(), lr=1e-2)
    sampler = DistributedSampler(TensorDataset(x), seed=17)
    loader = DataLoader(TensorDataset(x), batch_size=15, sampler=sampler, drop_last=True)
    noise = torch.Generator().manual_seed(rank + 50)
    step, warm = 0, 12
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (xb,) in loader:
            beta = min(1.0, step / warm)        # KL annealing: depends on the step only
            eps = torch.randn(len(xb), 3, generator=noise)
            loss = elbo(xb, *model(xb, eps), beta)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
        if rank == 0:
            print("epoch", epoch, "elbo", -loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
