"""Optimizer states partitioned over the ranks: every rank updates its slice of the flat weights with Muon."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def newton_schulz(m, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = m / (m.norm() + 1e-7)
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    for _ in range(steps):
        g = x @ x.T
        x = a * x + (b * g + c * g @ g) @ x
    return x.T if tall else x


class PartitionedMuon:
    def __init__(self, params, lr=0.02, momentum=0.9):
        self.params, self.lr, self.momentum = list(params), lr, momentum
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        total = sum(p.numel() for p in self.params)
        self.chunk = (total + self.world - 1) // self.world
        self.lo, self.hi = self.rank * self.chunk, (self.rank + 1) * self.chunk
        self.flat = torch.zeros(self.chunk * self.world)
        self.spans, self.state, at = [], {}, 0
        for p in self.params:
            self.flat[at:at + p.numel()] = p.data.flatten()
            p.data = self.flat[at:at + p.numel()].view_as(p)
            self.spans.append((at, at + p.numel()))
            at += p.numel()

    def averaged_gradient(self):
        grad = torch.zeros_like(self.flat)
        for p, (a, b) in zip(self.params, self.spans):
            grad[a:b] = p.grad.flatten()
        mine = torch.empty(self.chunk)
        dist.reduce_scatter_tensor(mine, grad)
        grad[self.lo:self.hi] = mine / self.world
        return grad

    @torch.no_grad()
    def step(self):
        grad = self.averaged_gradient()
        for p, (a, b) in zip(self.params, self.spans):
            left, right = max(a, self.lo), min(b, self.hi)
            if left >= right:
                continue
            buf = self.state.setdefault(p, torch.zeros_like(p))
            buf.mul_(self.momentum).add_(grad[a:b].view_as(p))
            update = newton_schulz(buf) if p.ndim == 2 else buf
            self.flat[left:right] -= self.lr * update.flatten()[left - a:right - a]
        dist.all_gather_into_tensor(self.flat, self.flat[self.lo:self.hi].clone())

    def zero_grad(self):
        for p in self.params:
            p.grad = None


dist.init_process_group("gloo")
g = torch.Generator().manual_seed(6)
inputs = torch.randn(128, 10, generator=g)
hidden = torch.tanh(inputs @ torch.randn(10, 6, generator=g))
targets = (hidden @ torch.randn(6, 5, generator=g)).argmax(1)
data = TensorDataset(inputs, targets)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = PartitionedMuon(model.parameters())
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}")
dist.destroy_process_group()
