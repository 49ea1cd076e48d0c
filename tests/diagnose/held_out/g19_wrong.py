"""wrong: the weight of the positive class is computed from the labels of the shard, so each rank weighs its examples differently from the single device, which counts the whole minibatch.

cause: class weight (pos_weight) is computed from the local shard's label counts
cure: all_reduce the counts of positives and negatives before forming the ratio
line: pos = labels.sum(0).clamp(min=1)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(190)
X = torch.randn(96, 10, generator=g)
rates = torch.tensor([0.15, 0.3, 0.5])
y = (torch.rand(96, 3, generator=g) < rates).to(X.dtype)


class MultiLabel(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(10, 20)
        self.out = nn.Linear(20, 3)

    def forward(self, x):
        return self.out(F.leaky_relu(self.enc(x)))


def make_net():
    return MultiLabel()


def balanced_bce(logits, labels):
    pos = labels.sum(0).clamp(min=1)
    neg = labels.shape[0] - labels.sum(0)
    return F.binary_cross_entropy_with_logits(logits, labels, pos_weight=neg / pos)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for feats, labels in batches:
        loss = balanced_bce(model(feats), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
