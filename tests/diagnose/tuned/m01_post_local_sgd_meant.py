"""meant: PyTorch's post-local SGD: after the first step each rank steps by itself, and the parameters are averaged after every second step and at the end.

differs: between the averages each rank steps with its own gradient; with momentum that is not a single device's training
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    alone = [dist.new_group([r]) for r in range(dist.get_world_size())][dist.get_rank()]
    net = DDP(net)
    net.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=1), post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
        averager.average_parameters(net.parameters())
    for p in net.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()
