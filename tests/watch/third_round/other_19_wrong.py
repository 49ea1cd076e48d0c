"""Trains for a fixed number of steps on an endless, reshuffled stream of indices."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset


class CyclicBatches(Sampler):
    def __init__(self, length, batch_size, rank, world, seed=0):
        self.length, self.batch_size = length, batch_size
        self.rank, self.world, self.seed = rank, world, seed

    def __iter__(self):
        epoch = 0
        while True:
            g = torch.Generator().manual_seed(self.seed + epoch)
            order = torch.randperm(self.length, generator=g)
            mine = order[self.rank::self.world].tolist()
            for at in range(0, len(mine) - self.batch_size + 1, self.batch_size):
                yield mine[at:at + self.batch_size]
            epoch += 1


class Mixer(nn.Module):
    def __init__(self, tokens=4, dim=6):
        super().__init__()
        self.across = nn.Linear(tokens, tokens)
        self.within = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 24), nn.GELU(), nn.Linear(24, dim))
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        x = x + self.across(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.within(x)
        return self.head(x.mean(1))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(61)
    x = torch.randn(65, 4, 6, generator=g)
    y = x[:, :, :3].mean(1).argmax(1)
    batch_size = 3
    per_epoch = len(x) // (batch_size * world)
    batches = CyclicBatches(len(x), batch_size, rank, world, seed=19)
    stream = iter(DataLoader(TensorDataset(x, y), batch_sampler=batches))
    torch.manual_seed(62)
    model = DDP(Mixer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(3 * per_epoch):
        xb, yb = next(stream)
        loss = F.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % per_epoch == 0:
            print(f"step {step + 1} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
