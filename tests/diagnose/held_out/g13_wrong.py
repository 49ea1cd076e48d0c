"""wrong: retrieval training gathers the passage embeddings of all ranks as negatives with plain all_gather, which carries no gradient; the gradient that the other ranks' losses send to this rank's passages is lost.

cause: all_gather is not differentiable, so the gathered negatives are detached and part of the gradient is missing
cure: gather with torch.distributed.nn.all_gather (or an autograd function whose backward sums over ranks)
line: dist.all_gather(bank, p.detach().contiguous())
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(130)
topic = torch.randn(96, 6)
X = torch.cat([topic + 0.1 * torch.randn(96, 6), (topic + 0.1 * torch.randn(96, 6)) @ torch.randn(6, 8)], 1)
y = torch.arange(96)


class BiEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 10))
        self.p = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 10))

    def forward(self, x):
        return self.q(x[:, :6]), self.p(x[:, 6:])


def make_net():
    return BiEncoder()


def gather_passages(p):
    bank = [torch.empty_like(p) for _ in range(dist.get_world_size())]
    dist.all_gather(bank, p.detach().contiguous())
    bank[dist.get_rank()] = p      # keep our own part in the graph
    return torch.cat(bank)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for pair, _ in batches:
        q, p = model(pair)
        all_p = gather_passages(p)
        scores = q @ all_p.t() / 2.0
        target = torch.arange(q.size(0)) + dist.get_rank() * q.size(0)
        loss = F.cross_entropy(scores, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
