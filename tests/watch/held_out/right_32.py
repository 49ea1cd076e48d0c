"""SimCLR-like contrastive training. Features are gathered with the differentiable all_gather; each rank's
loss is the mean over its own anchors, so DDP's averaging gives the mean over all anchors."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class TwoViews(Dataset):
    def __init__(self, n=144, seed=5):
        self.base = torch.randn(n, 20, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        b = self.base[i]
        return b + 0.2 * torch.randn(20), b * (torch.rand(20) > 0.1)


class Proj(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, a, b):
        return F.normalize(self.f(a), dim=1), F.normalize(self.f(b), dim=1)


def nt_xent(za, zb, tau=0.2):
    rank = dist.get_rank()
    all_b = torch.cat(all_gather(zb))
    all_a = torch.cat(all_gather(za))
    target = torch.arange(len(za)) + rank * len(za)
    return 0.5 * (F.cross_entropy(za @ all_b.t() / tau, target) + F.cross_entropy(zb @ all_a.t() / tau, target))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(Proj())
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    ds = TwoViews()
    sampler = DistributedSampler(ds, drop_last=True)
    loader = DataLoader(ds, batch_size=12, sampler=sampler, drop_last=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for a, b in loader:
            loss = nt_xent(*model(a, b))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"{epoch} {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
