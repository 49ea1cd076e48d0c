"""Synchronises the replicas by averaging their weights."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def average_weights(model):
    size = float(dist.get_world_size())
    for p in model.parameters():
        dist.all_reduce(p.data, op=dist.ReduceOp.SUM)
        p.data /= size


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(70)
    x = torch.randn(198, 7)
    y = (x[:, 0].sin() + x[:, 1].cos()).unsqueeze(1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=11, sampler=sampler)
    model = nn.Sequential(nn.Linear(7, 28), nn.ReLU(), nn.Linear(28, 1))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            opt.step()
            average_weights(model)
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
