"""right: hand-written averaging (state dict broadcast first, SUM then division) followed by clipping by value, in that order."""
import torch
import torch.nn as nn
import torch.distributed as dist

g = torch.Generator().manual_seed(7)
X = torch.randn(96, 6, generator=g)
y = X @ torch.randn(6, 3, generator=g) * 4


def make_net():
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))


def sync_initial_state(net):
    for t in net.state_dict().values():
        dist.broadcast(t, 0)


@torch.no_grad()
def average_gradients(net):
    size = float(dist.get_world_size())
    for param in net.parameters():
        if param.grad is None:
            continue
        dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
        param.grad /= size


def train(net, batches):
    sync_initial_state(net)
    loss_fn = nn.MSELoss()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for xb, yb in batches:
        opt.zero_grad()
        loss_fn(net(xb), yb).backward()
        average_gradients(net)
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.05)
        opt.step()
