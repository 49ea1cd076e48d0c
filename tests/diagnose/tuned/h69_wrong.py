"""wrong: the hand-written start-up broadcasts the parameters but not the buffers, and the net's random position table is a buffer, so the replicas compute different functions.

cause: buffers are not broadcast at start-up, only parameters
cure: broadcast net.buffers() too (or the whole state_dict)
line: for p in net.parameters():
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(169)
X = torch.randint(10, (96, 6), generator=g)
y = torch.randint(4, (96,), generator=g)


class PosBag(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.tok = nn.Embedding(10, dim)
        self.register_buffer("pos", torch.randn(6, dim))
        self.out = nn.Sequential(nn.Linear(dim, 12), nn.ReLU(), nn.Linear(12, 4))

    def forward(self, ids):
        return self.out((self.tok(ids) * self.pos).mean(1))


def make_net():
    return PosBag()


def start(net):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)


def average_grads(net):
    flat = torch.cat([q.grad.flatten() for q in net.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    pieces = flat.split([q.numel() for q in net.parameters()])
    for q, piece in zip(net.parameters(), pieces):
        q.grad.copy_(piece.view_as(q))


def train(net, batches):
    start(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    for ids, lab in batches:
        opt.zero_grad()
        F.cross_entropy(net(ids), lab).backward()
        average_grads(net)
        opt.step()
