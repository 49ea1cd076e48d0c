"""right: a communication hook that only sums, together with a loss divided by the world size; the two together make the mean."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(49)
X = torch.randn(96, 5, generator=g)
y = torch.randn(96, 5, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 5))


def sum_hook(state, bucket: dist.GradBucket):
    fut = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.SUM, async_op=True).get_future()
    return fut.then(lambda f: f.value()[0])


def train(net, batches):
    world = dist.get_world_size()
    model = DDP(net)
    model.register_comm_hook(None, sum_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, t in batches:
        rec = model(x)
        # the hook adds over ranks, so scale here
        loss = F.mse_loss(rec, t) / world
        opt.zero_grad()
        loss.backward()
        opt.step()
