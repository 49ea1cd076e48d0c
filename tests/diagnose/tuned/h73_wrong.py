"""wrong: importance weights of a prioritised replay are divided by the largest weight in the rank's own shard, so ranks scale their losses differently.

cause: importance weights normalised by the local maximum
cure: all_reduce the maximum (ReduceOp.MAX) over the ranks before dividing
line: w = w / w.max()
"""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(173)
state = torch.randn(96, 5, generator=g)
prob = torch.rand(96, 1, generator=g).pow(2) + 0.01
prob[torch.arange(96) % 6 == 0] = 0.003  # rarely sampled
X = torch.cat([state, prob], 1)
y = torch.stack([torch.randint(3, (96,), generator=g), torch.randint(-2, 3, (96,), generator=g)], 1)


def make_net():
    return nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 3))


def is_weights(prob, beta=0.6):
    w = (len(prob) * prob) ** (-beta)
    w = w / w.max()
    return w


def train(net, batches):
    q_net = DDP(net)
    opt = torch.optim.RMSprop(q_net.parameters(), lr=1e-3, alpha=0.95, eps=0.01)
    for x, t in batches:
        action, ret = t.unbind(1)
        q = q_net(x[:, :5]).gather(1, action[:, None]).squeeze(1)
        td = ret.to(q.dtype) - q
        loss = (is_weights(x[:, 5]) * td.pow(2)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
