"""wrong: gradients are summed module by module, so that the weight tied between embedding and decoder is all-reduced twice, and divided once: its gradient comes out k times too large.

cause: the tied weight is all-reduced twice (visited once per module)
cure: loop over net.parameters(), which lists a shared parameter once, or keep a set of ids already reduced
line: dist.all_reduce(p.grad)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

V = 18
g = torch.Generator().manual_seed(134)
X = torch.randint(V, (96, 4), generator=g)
y = torch.randint(V, (96,), generator=g)


class LM(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.hidden = nn.Linear(d, d)
        self.decode = nn.Linear(d, V, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, ids):
        return self.decode(torch.tanh(self.hidden(self.embed(ids).sum(1))))


def make_net():
    return LM()


def reduce_by_module(net):
    for module in net.modules():
        for p in module.parameters(recurse=False):
            dist.all_reduce(p.grad)


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for ids, nxt in batches:
        opt.zero_grad()
        F.cross_entropy(net(ids), nxt).backward()
        reduce_by_module(net)
        for p in net.parameters():
            p.grad.div_(dist.get_world_size())
        opt.step()
