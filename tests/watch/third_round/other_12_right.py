"""Mixture of experts whose routing is evened out by a bias instead of an extra loss."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class MoE(nn.Module):
    def __init__(self, dim=8, experts=6, top=2):
        super().__init__()
        self.top = top
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))
        self.register_buffer("bias", torch.zeros(experts))
        self.register_buffer("load", torch.zeros(experts))

    def forward(self, x):
        score = self.router(x).sigmoid()
        chosen = (score + self.bias).topk(self.top, dim=1).indices
        picked = torch.zeros_like(score).scatter(1, chosen, 1.0)
        if self.training:
            self.load += picked.sum(0)
        weight = score * picked
        weight = weight / weight.sum(1, keepdim=True)
        outs = torch.stack([F.gelu(e(x)) for e in self.experts], 1)
        return x + (weight[..., None] * outs).sum(1)

    @torch.no_grad()
    def balance(self, speed=0.05):
        load = self.load.clone()
        dist.all_reduce(load)
        self.bias += speed * torch.sign(load.mean() - load)
        self.load.zero_()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.moe, self.last = nn.Linear(10, 8), MoE(), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.moe(torch.tanh(self.first(x))))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(7)
    x = torch.randn(128, 10, generator=g)
    y = (x.abs() @ torch.randn(10, 4, generator=g)).argmax(1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.module.moe.balance()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()
