"""Low-rank fine-tuning of a frozen token mixer on a synthetic labelling task."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Backbone(nn.Module):
    def __init__(self, vocab=32, dim=16, depth=2, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Mixer(dim) for _ in range(depth))
        self.out = nn.Linear(dim, classes)

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            h = layer(h)
        return self.out(h.mean(1))


class Adapted(nn.Module):
    def __init__(self, base, rank, mesh):
        super().__init__()
        self.base = base
        out_features, in_features = base.weight.shape
        self.a = nn.Parameter(distribute_tensor(torch.randn(rank, in_features) * 0.2, mesh, [Replicate()]))
        self.b = nn.Parameter(distribute_tensor(torch.zeros(out_features, rank), mesh, [Replicate()]))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a.to_local()), self.b.to_local())


def add_adapters(model, mesh, rank=4):
    found = []
    for layer in model.layers:
        for name in ("up", "down"):
            adapted = Adapted(getattr(layer, name), rank, mesh)
            setattr(layer, name, adapted)
            found += [adapted.a, adapted.b]
    return found


def average_gradient(p):
    grad = p.grad.to_local()
    dist.all_reduce(grad)
    grad.div_(dist.get_world_size())


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    torch.manual_seed(11)
    ids = torch.randint(0, 32, (96, 12))
    labels = (ids < 8).sum(1).clamp(max=3)
    model = Backbone().requires_grad_(False)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    adapters = add_adapters(model, mesh)
    for p in adapters:
        p.register_post_accumulate_grad_hook(average_gradient)
    opt = torch.optim.AdamW(adapters, lr=5e-3, weight_decay=0.0, foreach=False)
    data = TensorDataset(ids, labels)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch, target in loader:
            loss = F.cross_entropy(model(batch), target)
            loss.backward()
            opt.step()
            opt.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
