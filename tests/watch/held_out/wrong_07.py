"""Mixture of two towers: each worker sees batches of one 'modality' per step. Hand-made gradient exchange."""
import torch
import torch.distributed as dist
import torch.nn as nn


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
        self.audio = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 16))
        self.shared = nn.Linear(16, 2)

    def forward(self, x, modality):
        z = self.image(x) if modality == "image" else self.audio(x)
        return self.shared(torch.relu(z))


def average(model, world):
    for p in model.parameters():
        if p.grad is None:
            continue
        dist.all_reduce(p.grad)
        p.grad /= world


def make_batches(rank, world, epoch):
    g = torch.Generator().manual_seed(epoch)
    xi, xa = torch.randn(96, 16, generator=g), torch.randn(96, 8, generator=g)
    for step in range(0, 96 // (8 * world)):
        sl = slice((step * world + rank) * 8, (step * world + rank + 1) * 8)
        if (step + rank) % 2 == 0:
            yield "image", xi[sl], (xi[sl].mean(1) > 0).long()
        else:
            yield "audio", xa[sl], (xa[sl].mean(1) > 0).long()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = TwoTowers()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for modality, x, y in make_batches(rank, world, epoch):
            opt.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(x, modality), y)
            loss.backward()
            average(model, world)
            opt.step()
        print(f"rank {rank} epoch {epoch} {modality} {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
