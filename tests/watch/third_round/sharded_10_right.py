"""Small classifier whose matrices are trained with orthogonalised momentum."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def orthogonalise(m, steps=5):
    x = m / (m.norm() + 1e-7)
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T
    for _ in range(steps):
        s = x @ x.T
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
    return x if wide else x.T


class OrthogonalMomentum(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "buffer" not in state:
                    state["buffer"] = torch.zeros_like(p)
                buffer = state["buffer"]
                buffer.mul_(group["momentum"]).add_(p.grad)
                direction = orthogonalise(buffer.full_tensor())
                p.sub_(group["lr"] * distribute_tensor(direction, p.device_mesh, p.placements))


class Tower(nn.Module):
    def __init__(self, dim=12, width=32, depth=3, classes=5):
        super().__init__()
        self.enter = nn.Linear(dim, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(depth))
        self.leave = nn.Linear(width, classes)

    def forward(self, x):
        h = self.enter(x)
        for layer in self.layers:
            h = h + layer(h)
        return self.leave(h)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    x = torch.randn(128, 12)
    y = (torch.tanh(x @ torch.randn(12, 16)) @ torch.randn(16, 5)).argmax(1)
    model = Tower()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    matrices = [p for p in model.layers.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    optimizers = [OrthogonalMomentum(matrices), torch.optim.AdamW(rest, lr=3e-3)]
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, world, rank, seed=13)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        seen = torch.zeros(2)
        for inputs, target in loader:
            loss = F.cross_entropy(model(inputs), target)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            seen += torch.tensor([loss.item() * len(target), len(target)])
        dist.all_reduce(seen)
        if rank == 0:
            print(f"epoch {epoch} loss {(seen[0] / seen[1]).item():.4f}")
    dist.destroy_process_group()


main()
