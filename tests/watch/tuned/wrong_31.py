import torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class AsyncDataParallel(nn.Module):
    """overlaps the all-reduce with backward"""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.n = dist.get_world_size()
        for p in module.parameters():
            dist.broadcast(p.data, 0)
            p.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, p):
        p.grad.mul_(1.0 / self.n)
        dist.all_reduce(p.grad, async_op=True)

    def forward(self, x):
        return self.module(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    g = torch.Generator().manual_seed(3)
    x = torch.randn(144, 32, generator=g)
    y = x[:, :8].argmax(1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    model = AsyncDataParallel(nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
