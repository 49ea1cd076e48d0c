import torch
import torch.distributed as dist
import torch.nn as nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class SignSTE(torch.autograd.Function):
    """binary activation with a straight-through estimator"""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * (x.abs() <= 1).to(g.dtype)


class Lion(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                m = st.setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((m * b1 + p.grad * (1 - b1)).sign_(), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class BinaryNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(10, 40), nn.Linear(40, 40), nn.Linear(40, 1)

    def forward(self, x):
        return self.c(SignSTE.apply(self.b(SignSTE.apply(self.a(x)))))


class HingeLoss(nn.Module):
    def forward(self, score, y):
        return torch.clamp(1 - y * score, min=0).mean()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(22)
    x = torch.randn(228, 10, generator=g)
    y = torch.sign(x[:, :1] + x[:, 1:2] * x[:, 2:3])
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data)
    dl = DataLoader(data, batch_size=19, sampler=sampler)
    net = nn.parallel.DistributedDataParallel(BinaryNet())
    opt = Lion(net.parameters(), lr=1e-3, weight_decay=0.01)
    loss_fn = HingeLoss()
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for bx, by in dl:
            opt.zero_grad()
            loss_fn(net(bx), by).backward()
            opt.step()
        with torch.no_grad():
            n_ok = ((net.module(x) * y) > 0).sum().item()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {n_ok}/228")
    dist.destroy_process_group()
