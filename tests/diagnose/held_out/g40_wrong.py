"""wrong: scale_grad_by_freq divides each embedding row's gradient by how often the index occurs in the rank's own shard, not in the whole minibatch, so the averaged row gradients have the wrong scale.

cause: scale_grad_by_freq uses the frequencies of the local shard
cure: drop scale_grad_by_freq, or scale the rows after the all-reduce by counts summed over ranks
line: self.emb = nn.Embedding(WORDS, 10, scale_grad_by_freq=True)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORDS, LEN = 15, 6
torch.manual_seed(401)
X = torch.randint(0, WORDS, (96, LEN))
y = (X.float().mean(1) > WORDS / 2 - 0.5).long()


class BagClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(WORDS, 10, scale_grad_by_freq=True)
        self.fc = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2))

    def forward(self, ids):
        return self.fc(self.emb(ids).mean(1))


def make_net():
    return BagClassifier()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    for ids, label in batches:
        opt.zero_grad()
        loss = F.cross_entropy(model(ids), label)
        loss.backward()
        opt.step()
