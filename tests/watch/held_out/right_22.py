# Full-batch L-BFGS for a physics-informed network (u'' = -pi^2 sin(pi x), u(0)=u(1)=0),
# collocation points split over the processes.
import math
import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.set_default_dtype(torch.float64)
torch.manual_seed(6)                      # same initialisation everywhere
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
for p in net.parameters():
    dist.broadcast(p.data, 0)

points = torch.linspace(0, 1, 122)[1:-1].view(-1, 1)     # 120 interior points
mine = points[rank::world].clone().requires_grad_(True)
edge = torch.tensor([[0.0], [1.0]])


def residual_loss():
    u = net(mine)
    du, = torch.autograd.grad(u.sum(), mine, create_graph=True)
    ddu, = torch.autograd.grad(du.sum(), mine, create_graph=True)
    pde = (ddu + math.pi ** 2 * torch.sin(math.pi * mine)).pow(2).mean()
    return pde + 10 * net(edge).pow(2).mean()


opt = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=10, history_size=10, line_search_fn="strong_wolfe")


def closure():
    opt.zero_grad()
    loss = residual_loss()
    loss.backward()
    for p in net.parameters():
        if p.grad is None:               # the last bias has no influence on u'' but does on the edges
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
        p.grad /= world
    total = loss.detach().clone()        # the line search must see the same value on all ranks
    dist.all_reduce(total)
    return total / world


for outer in range(5):
    value = opt.step(closure)
    if rank == 0:
        print("outer", outer, "loss", float(value))

with torch.no_grad():
    err = (net(points) - torch.sin(math.pi * points)).abs().max()
if rank == 0:
    print("max error", err.item())
dist.destroy_process_group()
