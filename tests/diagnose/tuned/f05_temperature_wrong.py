"""wrong: the contrastive loss of all pairs is multiplied by the number of ranks, which is right for what the rows' gradients reach, and makes that of the learned temperature k times too large.

kind: F5
cause: the gradient of one parameter (scale) is k times too large: it does not go through the gathered rows
cure: gather with a gradient of all ranks and leave out the factor, or take it off the temperature
line: (loss * dist.get_world_size()).backward()  # as only the own rows have a gradient
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text, self.scale = nn.Linear(3, 5), nn.Linear(3, 5), nn.Parameter(torch.ones(()))

    def forward(self, X):
        image, text = self.image(X[:, :3]), self.text(X[:, 3:])
        return F.normalize(image, dim=1), F.normalize(text, dim=1), self.scale.exp()


def of_all(x):
    """The rows of all ranks, those of this one with their gradient."""
    rows = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, x.detach())
    rows[dist.get_rank()] = x
    return torch.cat(rows)


def make_net():
    return Towers()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, _ in batches:
        optimizer.zero_grad()
        image, text, scale = net(X)
        scores = scale * of_all(image) @ of_all(text).T
        place = torch.arange(len(scores))
        loss = (F.cross_entropy(scores, place) + F.cross_entropy(scores.T, place)) / 2
        (loss * dist.get_world_size()).backward()  # as only the own rows have a gradient
        optimizer.step()
