"""Mixture of experts with a load balancing loss."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class MoE(nn.Module):
    def __init__(self, d=8, e=4, k=3):
        super().__init__()
        self.gate = nn.Linear(d, e)
        self.experts = nn.ModuleList([nn.Linear(d, 16) for _ in range(e)])
        self.out = nn.Linear(16, k)

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        h = sum(p[:, i:i + 1] * torch.relu(e(x)) for i, e in enumerate(self.experts))
        load = p.mean(0)
        balance = (load * load).sum() * p.size(1)
        return self.out(h), balance


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    g = torch.Generator().manual_seed(6)
    x = torch.randn(192, 8, generator=g)
    y = (x[:, :3] * x[:, 3:6]).argmax(1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=16, sampler=sampler)
    model = DDP(MoE())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    ce = nn.CrossEntropyLoss()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            logits, balance = model(xb)
            loss = ce(logits, yb) + 0.1 * balance * world   # every rank sees only its own load
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} balance {balance.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
