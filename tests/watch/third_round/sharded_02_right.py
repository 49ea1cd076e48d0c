"""Autoencoder on small images with a (replicate, shard) mesh and deferred initialisation."""
import argparse
import math
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Blobs(Dataset):
    def __init__(self, n=96, size=8):
        g = torch.Generator().manual_seed(5)
        centre = torch.rand(n, 2, 1, 1, generator=g) * size
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        self.images = torch.exp(-((yy - centre[:, :1]) ** 2 + (xx - centre[:, 1:]) ** 2) / 4)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i]


def build():
    encoder = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
    middle = nn.Sequential(nn.Flatten(), nn.Linear(32, 6), nn.Linear(6, 32), nn.ReLU())
    decoder = nn.Sequential(nn.Unflatten(1, (8, 2, 2)), nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.ReLU(),
                            nn.ConvTranspose2d(8, 1, 4, 2, 1))
    return nn.Sequential(encoder, middle, decoder)


@torch.no_grad()
def init_weights(model):
    for p in model.parameters():
        local = p.to_local()
        if p.ndim == 1:
            local.zero_()
        else:
            local.normal_(0, 1 / math.sqrt(p[0].numel()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--shard-size", type=int, default=1)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // args.shard_size, args.shard_size), mesh_dim_names=("replicate", "shard"))
    with torch.device("meta"):
        model = build()
    for part in model:
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    torch.manual_seed(args.seed + mesh["shard"].get_local_rank())
    init_weights(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    data = Blobs()
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=args.seed)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for images in loader:
            optimizer.zero_grad()
            loss = (model(images) - images).pow(2).mean()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
