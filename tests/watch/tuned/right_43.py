"""SimCLR on vectors. Embeddings of all ranks serve as negatives; the gathering passes gradients back."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.distributed.nn.functional as distF
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def nt_xent(a, b, tau=0.2):
    """anchors of this rank against the second views of all ranks"""
    rank, n = dist.get_rank(), a.size(0)
    all_b = torch.cat(distF.all_gather(b.contiguous()))
    logits = a @ all_b.t() / tau
    return F.cross_entropy(logits, torch.arange(n) + rank * n)


def augment(x):
    return x + 0.15 * torch.randn_like(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(1)
    x = torch.randn(96, 12, generator=g)
    ds = TensorDataset(x)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler, drop_last=True)
    torch.manual_seed(1000 + rank)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8)))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (xb,) in loader:
            z = F.normalize(model(torch.cat([augment(xb), augment(xb)])), dim=1)
            za, zb = z.chunk(2)
            loss = nt_xent(za, zb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
