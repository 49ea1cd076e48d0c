"""Class-conditional flow-matching transformer with HSDP and an EMA of the weights."""
import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Shapes(Dataset):
    def __init__(self, n=96, size=8):
        gen = torch.Generator().manual_seed(9)
        self.labels = torch.arange(n) % 3
        grid = torch.linspace(-1, 1, size)
        waves = torch.stack([torch.sin((c + 1) * 3 * grid) for c in range(3)])
        self.latents = waves[self.labels].unsqueeze(-1) * grid + 0.1 * torch.randn(n, size, size, generator=gen)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.latents[i], self.labels[i]


class DiTBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(approximate="tanh"), nn.Linear(2 * dim, dim))
        self.ada = nn.Linear(dim, 4 * dim)

    def forward(self, x, c):
        s1, b1, s2, b2 = self.ada(c).unsqueeze(1).chunk(4, dim=-1)
        h = self.norm(x) * (1 + s1) + b1
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self, dim=24, depth=2, classes=3, size=8):
        super().__init__()
        self.x_embed, self.t_embed = nn.Linear(size, dim), nn.Linear(2, dim)
        self.y_embed = nn.Embedding(classes + 1, dim)
        self.pos = nn.Parameter(torch.zeros(size, dim))
        self.blocks = nn.ModuleList([DiTBlock(dim) for _ in range(depth)])
        self.final = nn.Linear(dim, size)

    def forward(self, x, t, y):
        c = self.t_embed(torch.stack([t, torch.cos(3.14 * t)], -1)) + self.y_embed(y)
        x = self.x_embed(x) + self.pos
        for block in self.blocks:
            x = block(x, c)
        return self.final(x)


def shard(net, mesh, policy):
    for block in net.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(net, mesh=mesh, mp_policy=policy)


@torch.no_grad()
def update_ema(ema, model, decay):
    for pe, p in zip(ema.parameters(), model.parameters()):
        pe.lerp_(p.detach(), 1 - decay)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = dist.init_device_mesh("cpu", (1, world), mesh_dim_names=("dp_replicate", "dp_shard"))
    torch.manual_seed(0)
    net = DiT()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    ema = shard(copy.deepcopy(net), mesh, policy).requires_grad_(False).eval()
    model = shard(net, mesh, policy)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    data = Shapes()
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True, seed=4)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    noise_gen = torch.Generator().manual_seed(1234 + rank)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x1, y in loader:
            x0 = torch.randn(x1.shape, generator=noise_gen)
            t = torch.sigmoid(torch.randn(len(x1), generator=noise_gen))
            y = torch.where(torch.rand(len(y), generator=noise_gen) < 0.1, 3, y)
            xt = torch.lerp(x0, x1, t.view(-1, 1, 1))
            loss = ((model(xt, t, y).float() - (x1 - x0)) ** 2).mean()
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            update_ema(ema, model, decay=min(0.95, (1 + step) / (10 + step)))
        avg = loss.detach() / world
        dist.all_reduce(avg)
        if rank == 0:
            print(f"(epoch={epoch}, step={step:04d}) train loss: {avg.item():.4f}")
    weights = get_model_state_dict(ema, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save({"ema": weights, "steps": step}, os.path.join(tempfile.gettempdir(), "dit_ema.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
