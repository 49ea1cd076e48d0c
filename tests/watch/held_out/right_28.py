# FSDP2 (fully_shard) on a CPU mesh
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, d=24, n=2):
        super().__init__()
        self.inp, self.layers, self.out = nn.Linear(6, d), nn.ModuleList(Layer(d) for _ in range(n)), nn.Linear(d, 1)

    def forward(self, x):
        x = self.inp(x)
        for l in self.layers:
            x = l(x)
        return self.out(x)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optim = torch.optim.AdamW(model.parameters(), lr=5e-3)     # after sharding: DTensor parameters
    g = torch.Generator().manual_seed(1)
    x = torch.randn(144, 6, generator=g)
    ds = TensorDataset(x, (x[:, :1] - x[:, 1:2]).abs())
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optim.step()
            optim.zero_grad()
        if int(os.environ["RANK"]) == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
