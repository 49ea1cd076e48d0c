"""Model averaging after each step. With plain SGD (no momentum, no decay schedule differing by rank) the mean of
the updated weights is the update with the mean gradient, so this equals gradient averaging."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


@torch.no_grad()
def average_parameters(model):
    flat = nn.utils.parameters_to_vector(model.parameters())
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    nn.utils.vector_to_parameters(flat, model.parameters())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    x = torch.randn(180, 6)
    y = torch.stack([x[:, 0] + x[:, 1], x[:, 2] * x[:, 3]], 1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=10, sampler=sampler)
    model = nn.Sequential(nn.Linear(6, 24), nn.Softplus(), nn.Linear(24, 2))
    average_parameters(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.03)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            opt.step()
            average_parameters(model)
        if dist.get_rank() == 0:
            print(epoch, f"{loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
