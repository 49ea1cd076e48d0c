"""Home made DDP: reduction started from a hook when each gradient is ready."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class OverlappedDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.ws = dist.get_world_size()
        self.handles = []
        for p in module.parameters():
            dist.broadcast(p.data, src=0)
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, p):
        p.grad.div_(self.ws)
        self.handles.append(dist.all_reduce(p.grad, async_op=True))

    def finish_gradient_synchronization(self):
        for h in self.handles:
            h.wait()
        self.handles.clear()

    def forward(self, *a, **k):
        return self.module(*a, **k)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(5, 20)
        self.norm = nn.LayerNorm(20)
        self.b = nn.Linear(20, 1)

    def forward(self, x):
        return self.b(torch.relu(self.norm(self.a(x)))).squeeze(-1)


def main():
    dist.init_process_group("gloo")
    r = dist.get_rank()
    torch.manual_seed(r)
    model = OverlappedDP(MLP())
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(150, 5, generator=g)
    ds = TensorDataset(x, x.prod(1).clamp(-1, 1))
    sampler = DistributedSampler(ds, drop_last=True)
    loader = DataLoader(ds, batch_size=10, sampler=sampler, drop_last=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.l1_loss(model(xb), yb)
            loss.backward()
            model.finish_gradient_synchronization()
            opt.step()
        if r == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
