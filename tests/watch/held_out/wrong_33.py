import os
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def heavy_tailed(n=216, seed=3):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    y = x.sum(1, keepdim=True)
    bad = torch.rand(n, 1, generator=g) < 0.04
    return x, torch.where(bad, y + 30, y)


class SpikeGuard:
    """ignore batches with an exploding loss but keep DDP's collectives alive"""

    def __init__(self, limit):
        self.limit, self.skipped = limit, 0

    def __call__(self, loss):
        if not torch.isfinite(loss) or loss.item() > self.limit:
            self.skipped += 1
            return loss * 0.0
        return loss


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 1)))
    optimizer = torch.optim.RMSprop(net.parameters(), lr=3e-3)
    ds = TensorDataset(*heavy_tailed())
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=9, sampler=sampler)
    guard = SpikeGuard(limit=25.0)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = guard(nn.functional.mse_loss(net(x), y))
            loss.backward()
            optimizer.step()
        print(f"rank {os.environ['RANK']} epoch {epoch} skipped so far: {guard.skipped}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
