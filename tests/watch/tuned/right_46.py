# VAE, ELBO summed over the batch then divided by the local batch (all local batches are equal)
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torch.nn.parallel import DistributedDataParallel as DDP


class VAE(nn.Module):
    def __init__(self, d=16, z=3):
        super().__init__()
        self.enc = nn.Linear(d, 24)
        self.mu, self.lv = nn.Linear(24, z), nn.Linear(24, z)
        self.dec = nn.Sequential(nn.Linear(z, 24), nn.ReLU(), nn.Linear(24, d))

    def forward(self, x):
        h = F.relu(self.enc(x))
        mu, lv = self.mu(h), self.lv(h)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        return self.dec(z), mu, lv


def elbo(x, logits, mu, lv, beta):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    kl = -0.5 * (1 + lv - mu ** 2 - lv.exp()).sum()
    return (rec + beta * kl) / x.size(0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gen = torch.Generator().manual_seed(0)
    proto = (torch.rand(5, 16, generator=gen) > 0.5).float()
    x = proto[torch.randint(5, (180,), generator=gen)]
    flip = (torch.rand(x.shape, generator=gen) < 0.05).float()
    ds = TensorDataset((x - flip).abs())
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=10, sampler=sampler)
    torch.manual_seed(777 * (rank + 1))
    model = DDP(VAE())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        beta = min(1.0, (epoch + 1) / 3)
        for (xb,) in loader:
            loss = elbo(xb, *model(xb), beta)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, "elbo", -loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
