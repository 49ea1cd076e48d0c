"""Metric learning against a large table of class centres kept in slices, one per rank."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CLASSES, FEATURES, EMBED = 16, 20, 8


def identities(n=128):
    g = torch.Generator().manual_seed(31)
    label = torch.arange(n) % CLASSES
    prototype = torch.randn(CLASSES, FEATURES, generator=g)
    return prototype[label] + 0.4 * torch.randn(n, FEATURES, generator=g), label


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(FEATURES, 32), nn.SiLU())
        self.proj = nn.Linear(32, EMBED)

    def forward(self, x):
        return F.normalize(self.proj(self.inner(x)), dim=1)


class CentreTable:
    def __init__(self, mesh):
        table = torch.randn(CLASSES, EMBED)
        self.weight = nn.Parameter(distribute_tensor(table, mesh, [Shard(0)]))

    def logits(self, z, scale=8.0):
        full = self.weight.full_tensor()
        return scale * z @ F.normalize(full, dim=1).T


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(12)
    encoder = Encoder()
    fully_shard(encoder.inner, mesh=mesh)
    fully_shard(encoder, mesh=mesh)
    centres = CentreTable(mesh)
    x, label = identities()
    data = TensorDataset(x, label)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    optimizer = torch.optim.SGD([
        {"params": encoder.parameters(), "lr": 0.1},
        {"params": [centres.weight], "lr": 0.5},
    ], momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch, target in loader:
            loss = F.cross_entropy(centres.logits(encoder(batch)), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
