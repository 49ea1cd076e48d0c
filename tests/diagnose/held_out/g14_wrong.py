"""wrong: the gather function's backward returns only the local slice of the gradient without summing over ranks; as every rank computes the full loss and DDP then averages, the gradient is too small by the factor world size.

cause: backward of the gather takes the own slice without all_reduce, and DDP's averaging shrinks the gradient by world_size
cure: all_reduce (sum) the stacked gradient in backward before taking the slice, or multiply the loss by the world size
line: return grads[dist.get_rank()]
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(141)
X = torch.randn(96, 12)
y = X[:, :4].argmax(dim=1)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        return grads[dist.get_rank()]


def gather_labels(t):
    out = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(out, t.contiguous())
    return torch.cat(out)


def supcon(z, labels, tau=0.3):
    n = z.size(0)
    self_mask = torch.eye(n, dtype=torch.bool)
    logits = (z @ z.t() / tau).masked_fill(self_mask, -1e9)
    logp = logits - logits.logsumexp(1, keepdim=True)
    same = (labels[:, None] == labels[None]) & ~self_mask
    return -((logp * same).sum(1) / same.sum(1).clamp(min=1)).mean()


def make_net():
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 6))


def train(net, batches):
    net = DDP(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, lab in batches:
        z = F.normalize(net(x), dim=1)
        loss = supcon(torch.cat(Gather.apply(z)), gather_labels(lab))
        opt.zero_grad()
        loss.backward()
        opt.step()
