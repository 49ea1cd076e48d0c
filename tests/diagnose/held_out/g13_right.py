"""right: two task heads are trained in alternation, the step number (the same on every rank) decides which, and find_unused_parameters lets DDP skip the head that is not used."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(1313)
X = torch.randn(96, 11)
y = torch.stack([X[:, :4].argmax(1), X[:, 4:9].argmax(1)], 1)


class Alternating(nn.Module):
    HEADS = ("a", "b")

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(11, 18), nn.LeakyReLU(0.1), nn.Linear(18, 18), nn.LeakyReLU(0.1))
        self.heads = nn.ModuleDict({"a": nn.Linear(18, 4), "b": nn.Linear(18, 5)})

    def forward(self, x, which):
        return self.heads[which](self.body(x))


def make_net():
    return Alternating()


def train(net, batches):
    model = DDP(net, find_unused_parameters=True)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    step = 0
    for x, labels in batches:
        col = step % 2
        name = Alternating.HEADS[col]
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x, name), labels[:, col])
        loss.backward()
        opt.step()
        step += 1
