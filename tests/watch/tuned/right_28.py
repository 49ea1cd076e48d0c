"""Annealed gradient noise (Neelakantan et al.). Noise comes from a generator that has the same state on all
ranks, and is added after DDP's averaging, so that the replicas stay equal."""
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def add_noise(params, gen, step, eta=0.01, gamma=0.55):
    std = (eta / (1 + step) ** gamma) ** 0.5
    for p in params:
        if p.grad is not None:
            p.grad.add_(torch.randn(p.shape, generator=gen), alpha=std)


def main():
    dist.init_process_group("gloo")
    gen = torch.Generator().manual_seed(4242)
    data_gen = torch.Generator().manual_seed(1)
    x = torch.rand(160 + 32, 4, generator=data_gen) * 2 - 1
    y = torch.cos(3 * x).prod(1, keepdim=True)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=16, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 40), nn.Tanh(), nn.Linear(40, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            add_noise(model.parameters(), gen, step)
            opt.step()
            step += 1
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
