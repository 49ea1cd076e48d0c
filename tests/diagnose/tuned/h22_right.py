"""right: a communication hook of one's own divides the bucket by the world size, all-reduces it asynchronously and returns the future of the result."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(23)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 3, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 20), nn.Softplus(), nn.Linear(20, 3))


def mean_hook(process_group, bucket):
    group = process_group if process_group is not None else dist.group.WORLD
    tensor = bucket.buffer().div_(group.size())
    work = dist.all_reduce(tensor, group=group, async_op=True)
    return work.get_future().then(lambda fut: fut.value()[0])


def train(net, batches):
    model = DDP(net)
    model.register_comm_hook(state=None, hook=mean_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, t in batches:
        loss = F.mse_loss(model(x), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
