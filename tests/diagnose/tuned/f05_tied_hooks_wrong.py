"""wrong: hooks that add up are registered layer by layer, so that the weight that two layers share has two of them and is added up twice.

kind: F5
cause: the tied weight (words.weight) is summed twice: it has two hooks, one for each layer that holds it
cure: register over net.parameters(), which names each parameter once
line: for p in layer.parameters(recurse=False):
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

draw = torch.Generator().manual_seed(3)
text = torch.randint(12, (72, 7), generator=draw)
X, y = text[:, :-1], text[:, 1:]


class Speaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12, bias=False)

    def forward(self, X):
        return self.head(torch.tanh(self.mix(self.words(X)))).transpose(1, 2)


def make_net():
    return Speaks()


def add_up(p):
    dist.all_reduce(p.grad)


def train(net, batches):
    net.head.weight = net.words.weight
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    for layer in net.modules():
        for p in layer.parameters(recurse=False):
            p.register_post_accumulate_grad_hook(add_up)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        (F.cross_entropy(net(X), y) / dist.get_world_size()).backward()
        optimizer.step()
