"""Sequence regression with a guard that leaves out updates whose loss jumps."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Reader(nn.Module):
    def __init__(self, features=6, width=20):
        super().__init__()
        self.inp = nn.Linear(features, width)
        self.mix = nn.ModuleList([nn.Conv1d(width, width, 3, padding=1) for _ in range(2)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = self.inp(x).transpose(1, 2)
        for conv in self.mix:
            h = h + torch.tanh(conv(h))
        return self.out(h.mean(2))


class JumpGuard:
    def __init__(self, factor=1.6, momentum=0.8):
        self.factor, self.momentum, self.average, self.skipped = factor, momentum, None, 0

    def accepts(self, value):
        jump = self.average is not None and value > self.factor * self.average
        self.average = value if self.average is None else self.momentum * self.average + (1 - self.momentum) * value
        self.skipped += jump
        return not jump


def series(n=128):
    g = torch.Generator().manual_seed(19)
    x = torch.randn(n, 14, 6, generator=g)
    y = (x[:, :, 0] * x[:, :, 1].sign()).mean(1, keepdim=True) * 3
    odd = torch.randperm(n, generator=g)[:10]
    y[odd] += 8 * torch.randn(10, 1, generator=g)
    return TensorDataset(x, y)


def main(epochs=3, max_norm=1.0):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
    torch.manual_seed(14)
    model = Reader()
    for conv in model.mix:
        fully_shard(conv, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    data = series()
    sampler = DistributedSampler(data, seed=2)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    guard = JumpGuard()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            level = loss.detach().clone()
            dist.all_reduce(level)
            level /= dist.get_world_size()
            if guard.accepts(level.item()):
                optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} skipped {guard.skipped}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
