"""Two noisy views of each example; their embeddings should correlate dimension by dimension."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class TwoViews(Dataset):
    def __init__(self, n=128, d=12):
        g = torch.Generator().manual_seed(55)
        base = torch.randn(n, 4, generator=g) @ torch.randn(4, d, generator=g)
        self.left = base + 0.3 * torch.randn(n, d, generator=g)
        self.right = base + 0.3 * torch.randn(n, d, generator=g)

    def __len__(self):
        return len(self.left)

    def __getitem__(self, i):
        return self.left[i], self.right[i]


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class CrossCorrelation(nn.Module):
    def __init__(self, off=0.05):
        super().__init__()
        self.off = off

    def forward(self, a, b):
        world, d = dist.get_world_size(), a.shape[1]
        c = d * F.normalize(a, dim=1).t() @ F.normalize(b, dim=1) / len(a)
        c = SumOverRanks.apply(c) / world
        eye = torch.eye(d, dtype=torch.bool)
        return (1 - c[eye]).pow(2).sum() + self.off * c[~eye].pow(2).sum()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    views = TwoViews()
    sampler = DistributedSampler(views, shuffle=True)
    loader = DataLoader(views, batch_size=16, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8)))
    criterion = CrossCorrelation()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for left, right in loader:
            both = model(torch.cat([left, right]))
            a, b = both.chunk(2)
            loss = criterion(a, b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
