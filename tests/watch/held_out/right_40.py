# uneven inputs: rank 0 has more data than the others; the join context manager takes care of it
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, Subset


def shard_bounds(n, rank, world):
    # first rank gets 12 more than its fair share
    fair = (n - 12) // world
    lo = 0 if rank == 0 else 12 + rank * fair
    hi = 12 + (rank + 1) * fair
    return lo, hi


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(0)
    x = torch.randn(156, 7, generator=g)
    y = x[:, :1].exp().clamp(max=5)
    lo, hi = shard_bounds(156, rank, world)
    loader = DataLoader(Subset(TensorDataset(x, y), range(lo, hi)), batch_size=6, shuffle=True,
                        generator=torch.Generator().manual_seed(10 + rank))
    torch.manual_seed(1)
    net = DDP(nn.Sequential(nn.Linear(7, 24), nn.ReLU(), nn.Linear(24, 1)))
    opt = torch.optim.SGD(net.parameters(), lr=0.02)
    for epoch in range(3):
        steps = 0
        with Join([net]):
            for xb, yb in loader:
                opt.zero_grad()
                loss = nn.functional.mse_loss(net(xb), yb)
                loss.backward()
                opt.step()
                steps += 1
        print(f"rank {rank} epoch {epoch} steps {steps} loss {loss.item():.4f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
