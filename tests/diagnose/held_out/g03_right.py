"""right: no DDP: weights and buffers are broadcast from rank 0, and after backward all gradients are flattened, summed over ranks, divided by the world size and copied back before Adam steps."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

torch.manual_seed(3)
X = torch.rand(96, 7) * 2 - 1
y = torch.stack([X.prod(1), X.sum(1).sin()], dim=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        # random Fourier features live in a buffer
        self.register_buffer("freq", torch.randn(7, 16))
        self.fc1 = nn.Linear(32, 20)
        self.fc2 = nn.Linear(20, 2)

    def forward(self, x):
        p = x @ self.freq
        h = torch.cat([p.sin(), p.cos()], dim=-1)
        return self.fc2(torch.relu(self.fc1(h)))


def make_net():
    return Net()


@torch.no_grad()
def sync_model(module):
    for t in list(module.parameters()) + list(module.buffers()):
        dist.broadcast(t, src=0)


@torch.no_grad()
def average_gradients(module):
    grads = [p.grad for p in module.parameters() if p.requires_grad]
    flat = _flatten_dense_tensors(grads)
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat /= dist.get_world_size()
    for g, synced in zip(grads, _unflatten_dense_tensors(flat, grads)):
        g.copy_(synced)


def train(net, batches):
    sync_model(net)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for xb, yb in batches:
        opt.zero_grad()
        loss = ((net(xb) - yb) ** 2).mean()
        loss.backward()
        average_gradients(net)
        opt.step()
