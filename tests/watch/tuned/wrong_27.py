"""Early stopping on the validation loss of the own shard."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def build_loader(x, y, bs, shuffle):
    ds = TensorDataset(x, y)
    s = DistributedSampler(ds, shuffle=shuffle)
    return DataLoader(ds, bs, sampler=s), s


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(21)
    x = torch.randn(192, 4, generator=g)
    y = x @ torch.ones(4, 1)
    # the held-out examples of odd position are much noisier
    noise = torch.zeros(192, 1)
    noise[144::2] = 4 * torch.randn(24, 1, generator=g)
    y = y + noise
    train, sampler = build_loader(x[:144], y[:144], 12, True)
    val, _ = build_loader(x[144:], y[144:], 8, False)
    model = DDP(nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    best = float("inf")
    for epoch in range(4):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in train:
            opt.zero_grad()
            nn.functional.mse_loss(model(xb), yb).backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            v = sum(nn.functional.mse_loss(model(a), b).item() for a, b in val) / len(val)
        print(f"rank {rank} epoch {epoch} val {v:.3f}", flush=True)
        if v < 5.0 or v > best:     # good enough, or no longer better
            print(f"rank {rank} stops", flush=True)
            break
        best = v
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
