"""wrong: DDP is given the group of the rank's own node, and here each node has one rank, so that nobody averages over nodes.

kind: new
cause: DDP's process_group holds this rank only: gradients are averaged within a node
cure: DDP(net), with the group of all ranks
line: net = DDP(net, process_group=nodes[dist.get_rank() // PER_NODE])
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


PER_NODE = 1  # ranks on a machine


def train(net, batches):
    k = dist.get_world_size()
    nodes = [dist.new_group(list(range(i, min(i + PER_NODE, k)))) for i in range(0, k, PER_NODE)]
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    net = DDP(net, process_group=nodes[dist.get_rank() // PER_NODE])
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
