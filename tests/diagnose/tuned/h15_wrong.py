"""wrong: the fixed random target network (RND) is created on each rank from that rank's own random state and never broadcast, so ranks chase different targets.

cause: random target network differs by rank; it is neither wrapped nor broadcast
cure: broadcast the target's parameters from rank 0 (or build it with a shared seed)
line: target = RandomTarget().to(x0.dtype).requires_grad_(False)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(115)
X = torch.randn(96, 6, generator=g)
y = torch.zeros(96, dtype=torch.long)


class RandomTarget(nn.Sequential):
    def __init__(self, d=6, out=4):
        super().__init__(nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, out))


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def train(net, batches):
    predictor = DDP(net)
    x0 = batches[0][0]
    target = RandomTarget().to(x0.dtype).requires_grad_(False)
    opt = torch.optim.Adam(predictor.parameters(), lr=3e-3)
    for obs, _ in batches:
        with torch.no_grad():
            goal = target(obs)
        novelty = F.mse_loss(predictor(obs), goal)
        opt.zero_grad()
        novelty.backward()
        opt.step()
