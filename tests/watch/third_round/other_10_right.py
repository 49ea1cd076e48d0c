"""Vector-quantised autoencoder whose codes move by exponential averages."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Quantizer(nn.Module):
    def __init__(self, codes=12, dim=4, decay=0.9):
        super().__init__()
        self.decay = decay
        start = torch.randn(codes, dim)
        self.register_buffer("code", start)
        self.register_buffer("mass", torch.ones(codes))
        self.register_buffer("total", start.clone())

    @torch.no_grad()
    def move(self, z, index):
        hit = F.one_hot(index, len(self.code)).to(z.dtype)
        mass, total = hit.sum(0), hit.t() @ z
        dist.all_reduce(mass)
        dist.all_reduce(total)
        self.mass.mul_(self.decay).add_(mass, alpha=1 - self.decay)
        self.total.mul_(self.decay).add_(total, alpha=1 - self.decay)
        self.code.copy_(self.total / self.mass.clamp_min(1e-4)[:, None])

    def forward(self, z):
        index = torch.cdist(z.detach(), self.code).argmin(1)
        q = self.code[index].clone()
        if self.training:
            self.move(z.detach(), index)
        commit = F.mse_loss(z, q)
        return z + (q - z).detach(), commit


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 4))
        self.vq = Quantizer()
        self.dec = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 10))

    def forward(self, x):
        q, commit = self.vq(self.enc(x))
        return self.dec(q), commit


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(2)
    centre = 2 * torch.randn(6, 10, generator=g)
    x = centre[torch.randint(0, 6, (128,), generator=g)] + 0.3 * torch.randn(128, 10, generator=g)
    sampler = DistributedSampler(TensorDataset(x), shuffle=True)
    loader = DataLoader(sampler.dataset, batch_size=8, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(VQ())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            rebuilt, commit = model(batch)
            loss = F.mse_loss(rebuilt, batch) + 0.25 * commit
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
