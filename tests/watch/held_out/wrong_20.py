import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


class Fitter:
    def __init__(self, tol=1.0, max_epochs=4):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.tol, self.max_epochs = tol, max_epochs
        g = torch.Generator().manual_seed(15)
        x = torch.randn(240, 4, generator=g)
        y = x.sum(1, keepdim=True)
        # noisier labels at the front, as the file is sorted by quality
        y[:120] += 1.5 * torch.randn(120, 1, generator=g)
        self.x, self.y = x, y

    def split(self):
        per = len(self.x) // self.world
        return range(self.rank * per, (self.rank + 1) * per)

    def fit(self):
        shard = Subset(TensorDataset(self.x, self.y), self.split())
        loader = DataLoader(shard, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(self.rank))
        torch.manual_seed(0)
        model = DDP(Regressor())
        opt = torch.optim.Adam(model.parameters(), lr=2e-2)
        for epoch in range(self.max_epochs):
            total = 0.0
            for x, y in loader:
                opt.zero_grad()
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                opt.step()
                total += loss.item()
            mean = total / len(loader)
            print(f"rank {self.rank} epoch {epoch} loss {mean:.3f}", flush=True)
            if mean < self.tol:
                print(f"rank {self.rank}: converged", flush=True)
                break
        if self.rank == 0:
            print("training finished")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Fitter().fit()
    dist.destroy_process_group()
