"""right: a running average of the weights, begun after the wrapping has made them alike, updated on all ranks and loaded at the end."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    ddp = DDP(net)
    average = AveragedModel(ddp.module, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.9)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(ddp(X), y).backward()
        optimizer.step()
        average.update_parameters(ddp.module)
    net.load_state_dict(average.module.state_dict())
