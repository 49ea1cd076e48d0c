"""Two heads, two losses, each with its own backward()."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU())
        self.a = nn.Linear(20, 1)
        self.b = nn.Linear(20, 1)

    def forward(self, x):
        h = self.body(x)
        return self.a(h) + 0.1 * self.b(h), self.b(h) - 0.1 * self.a(h)


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(4)
    x = torch.randn(168, 10, generator=g)
    ds = TensorDataset(x, x[:, :5].sum(1, keepdim=True), x[:, 5:].prod(1, keepdim=True))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=14, sampler=sampler)
    model = DDP(Shared())
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, ya, yb in loader:
            opt.zero_grad()
            pa, pb = model(xb)
            loss_a = nn.functional.mse_loss(pa, ya)
            loss_b = nn.functional.mse_loss(pb, yb)
            loss_a.backward(retain_graph=True)
            loss_b.backward()
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, loss_a.item(), loss_b.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
