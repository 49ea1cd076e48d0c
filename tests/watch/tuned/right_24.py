import random
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class StochasticDepth(nn.Module):
    """Blocks are left out at random, each rank rolls its own dice."""

    def __init__(self, dim=12, depth=4, drop=0.3):
        super().__init__()
        self.inp = nn.Linear(6, dim)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.ReLU()) for _ in range(depth))
        self.out = nn.Linear(dim, 1)
        self.drop = drop

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            if self.training and random.random() < self.drop:
                continue
            h = h + b(h)
        return self.out(h)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    random.seed(rank)
    torch.manual_seed(0)
    x = torch.randn(180, 6)
    y = x.abs().sum(1, keepdim=True)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds, seed=1)
    loader = DataLoader(ds, batch_size=10, sampler=sampler)
    model = DDP(StochasticDepth(), find_unused_parameters=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
