"""right: a hook that casts the bucket to bfloat16, averages it over the ranks and casts back; only the rounding differs, as intended with compressed gradients."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(25)
X = torch.randn(96, 5, generator=g)
y = torch.randn(96, 1, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))


class HalfState:
    def __init__(self, dtype):
        self.dtype = dtype
        self.world = dist.get_world_size()


def compress_hook(state, bucket):
    original = bucket.buffer()
    small = (original / state.world).to(state.dtype)
    fut = dist.all_reduce(small, async_op=True).get_future()

    def widen(f):
        original.copy_(f.value()[0])
        return original

    return fut.then(widen)


def train(net, batches):
    ddp = DDP(net)
    ddp.register_comm_hook(HalfState(torch.bfloat16), compress_hook)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.02)
    for x, t in batches:
        opt.zero_grad()
        F.mse_loss(ddp(x), t).backward()
        opt.step()
