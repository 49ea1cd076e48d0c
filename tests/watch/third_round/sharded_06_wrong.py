"""Denoiser on random Fourier features; weights come from rank 0 when the model is set up."""
import argparse
import math
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Fourier(nn.Module):
    def __init__(self, dim, features, scale=1.0):
        super().__init__()
        self.register_buffer("frequencies", scale * torch.randn(dim, features), persistent=False)

    def forward(self, x):
        phase = 2 * math.pi * x @ self.frequencies
        return torch.cat([phase.sin(), phase.cos()], -1)


class Denoiser(nn.Module):
    def __init__(self, dim=2, features=16, width=48):
        super().__init__()
        self.lift = Fourier(dim, features, 0.3)
        self.hidden = nn.Sequential(nn.Linear(2 * features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.project = nn.Linear(width, dim)

    def forward(self, x):
        return self.project(self.hidden(self.lift(x)))


def setup(mesh):
    model = Denoiser()
    weights = model.state_dict() if dist.get_rank() == 0 else {}
    weights = {k: v.clone() for k, v in weights.items()}
    fully_shard(model.hidden, mesh=mesh)
    fully_shard(model, mesh=mesh)
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return model


def spiral(n=128):
    t = torch.linspace(0, 3 * math.pi, n)
    return torch.stack([t.cos() * t / 9, t.sin() * t / 9], 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=40)
    parser.add_argument("--sigma", type=float, default=0.1)
    opts = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(opts.seed + dist.get_rank())
    model = setup(init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    points = TensorDataset(spiral())
    sampler = DistributedSampler(points, seed=opts.seed)
    loader = DataLoader(points, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for (clean,) in loader:
            noise = opts.sigma * torch.randn_like(clean)
            loss = (model(clean + noise) - clean).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {total.item() / len(loader) / dist.get_world_size():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
