"""right: SwAV: the Sinkhorn assignment is balanced over the whole minibatch by all-reducing the row sums and counting examples of all ranks; the targets carry no gradient and the swapped loss is a mean over examples."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(38)
X = torch.randn(96, 1, 9) + 0.3 * torch.randn(96, 2, 9)
y = torch.zeros(96, dtype=torch.long)


class SwavNet(nn.Module):
    def __init__(self, dim=8, protos=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, dim))
        self.prototypes = nn.Linear(dim, protos, bias=False)

    def forward(self, x):
        return self.prototypes(F.normalize(self.enc(x), dim=1))


def make_net():
    return SwavNet()


@torch.no_grad()
def sinkhorn(scores, eps=0.25, iters=3):
    Q = torch.exp(scores / eps).t().contiguous()     # prototypes x examples
    K, B = Q.size(0), Q.size(1) * dist.get_world_size()
    total = Q.sum()
    dist.all_reduce(total)
    Q /= total
    for _ in range(iters):
        rows = Q.sum(dim=1, keepdim=True)
        dist.all_reduce(rows)
        Q /= rows * K
        Q /= Q.sum(dim=0, keepdim=True) * B
    return (Q * B).t()


def train(net, batches, temp=0.3):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for views, _ in batches:
        with torch.no_grad():
            w = model.module.prototypes.weight
            w.copy_(F.normalize(w, dim=1))
        n = views.size(0)
        s = model(torch.cat([views[:, 0], views[:, 1]]))
        s1, s2 = s[:n], s[n:]
        q1, q2 = sinkhorn(s1.detach()), sinkhorn(s2.detach())
        loss = -0.5 * ((q1 * F.log_softmax(s2 / temp, 1)).sum(1).mean()
                       + (q2 * F.log_softmax(s1 / temp, 1)).sum(1).mean())
        opt.zero_grad()
        loss.backward()
        opt.step()
