"""wrong: online hard example mining keeps the hardest quarter of the rank's own shard; the hardest quarter of the whole minibatch is in general another set of examples.

cause: top-k hard examples are chosen in the local shard instead of the whole minibatch
cure: gather the per-example losses of all ranks, take the global threshold, and normalise by the global k (times 1/world_size)
line: hard, _ = per_example.topk(max(1, int(KEEP * per_example.numel())))
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(200)
X = torch.randn(96, 7)
y = (X[:, :3].sum(1) > 0).long() + 2 * (X[:, 3] > 0.5).long()
KEEP = 0.25


def make_net():
    net = nn.Sequential()
    net.add_module("fc1", nn.Linear(7, 28))
    net.add_module("act1", nn.ReLU())
    net.add_module("fc2", nn.Linear(28, 4))
    return net


class OHEMLoss(nn.Module):
    def forward(self, logits, target):
        per_example = F.cross_entropy(logits, target, reduction="none")
        hard, _ = per_example.topk(max(1, int(KEEP * per_example.numel())))
        return hard.mean()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    ohem = OHEMLoss()
    for x, t in batches:
        opt.zero_grad()
        ohem(model(x), t).backward()
        opt.step()
