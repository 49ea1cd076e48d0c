"""VQ-VAE with an EMA codebook (buffers updated in the forward pass)."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset, DistributedSampler


class EMAQuantizer(nn.Module):
    def __init__(self, k=12, d=4, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("embed", torch.randn(k, d))
        self.register_buffer("size", torch.ones(k))
        self.register_buffer("avg", self.embed.clone())

    def forward(self, z):
        idx = torch.cdist(z, self.embed).argmin(1)
        q = self.embed[idx]
        if self.training:
            with torch.no_grad():
                onehot = F.one_hot(idx, len(self.embed)).float()
                self.size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.avg.mul_(self.decay).add_(onehot.t() @ z, alpha=1 - self.decay)
                self.embed.copy_(self.avg / (self.size.unsqueeze(1) + 1e-5))
        commit = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.vq, self.dec = nn.Linear(10, 4), EMAQuantizer(), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, x):
        q, commit = self.vq(self.enc(x))
        return self.dec(q), commit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(3, 10)[torch.randint(0, 3, (240,))] + 0.3 * torch.randn(240, 10)
    tr, va = TensorDataset(x[:180]), TensorDataset(x[180:])
    model = DDP(VQVAE(), broadcast_buffers=False)        # faster, and there is no batch norm
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sampler = DistributedSampler(tr)
    loader = DataLoader(tr, batch_size=15, sampler=sampler)
    val_loader = DataLoader(Subset(va, range(rank, 60, world)), batch_size=10)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for (xb,) in loader:
            rec, commit = model(xb)
            loss = F.mse_loss(rec, xb) + 0.25 * commit
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            err = sum(F.mse_loss(model(xb)[0], xb, reduction="sum") for (xb,) in val_loader)
        dist.all_reduce(err)
        if rank == 0:
            print(epoch, "val mse", err.item() / 600)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
