"""Regression on tabular data with a hybrid-sharded network; the gradient is clipped by its norm."""
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ResidualUnit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


class Regressor(nn.Module):
    def __init__(self, inputs=10, width=32, depth=3):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.units = nn.ModuleList([ResidualUnit(width) for _ in range(depth)])
        self.final = nn.Linear(width, 1)

    def forward(self, x):
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.final(x)


@torch.no_grad()
def clip_gradient(params, max_norm, mesh):
    grads = [p.grad.to_local() for p in params if p.grad is not None]
    square = torch.stack([g.float().pow(2).sum() for g in grads]).sum()
    dist.all_reduce(square, group=mesh["dp_shard"].get_group())
    norm = square.sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(scale)
    return norm.item()


def make_table(rows=128):
    g = torch.Generator().manual_seed(23)
    x = torch.randn(rows, 10, generator=g)
    y = x[:, 0] * x[:, 1] + 2 * torch.sin(x[:, 2]) + 0.1 * torch.randn(rows, generator=g)
    return TensorDataset(x, y)


def train(args):
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (args.replicas or world, world // (args.replicas or world)),
                            mesh_dim_names=("dp_replicate", "dp_shard"))
    torch.manual_seed(args.seed)
    net = Regressor()
    for unit in net.units:
        fully_shard(unit, mesh=mesh)
    fully_shard(net, mesh=mesh)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.8)
    table = make_table()
    sampler = DistributedSampler(table, shuffle=True, seed=args.seed)
    batches = DataLoader(table, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in batches:
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(x).squeeze(1), y)
            loss.backward()
            norm = clip_gradient(list(net.parameters()), args.max_norm, mesh)
            opt.step()
        if dist.get_rank() == 0:
            print(f"[{epoch}] loss {loss.item():.4f} norm {norm:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--replicas", type=int, default=0)
    parser.add_argument("--max-norm", type=float, default=0.5)
    train(parser.parse_args())
