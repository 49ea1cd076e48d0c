# LBFGS over all ranks: closure returns the *global* loss and global gradient
import torch, torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, W = dist.get_rank(), dist.get_world_size()
torch.manual_seed(31)                      # same network and same data on each rank...
x = torch.linspace(-3, 3, 120).unsqueeze(1)
y = torch.sin(2 * x) + 0.05 * torch.randn_like(x)
perm = torch.randperm(len(x))
x, y = x[perm], y[perm]
xs, ys = x[rank::W], y[rank::W]            # ...but only a slice of it here
net = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))
opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=6, history_size=8)


def closure_for(bx, by):
    def closure():
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(bx), by)
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= W
        out = loss.detach().clone()
        dist.all_reduce(out)
        return out / W
    return closure


for epoch in range(4):
    order = torch.randperm(len(xs))        # the generator is in the same state on each rank
    for part in order.split(20):
        value = opt.step(closure_for(xs[part], ys[part]))
    if rank == 0:
        print(f"epoch {epoch}  loss {float(value):.5f}")
dist.destroy_process_group()
