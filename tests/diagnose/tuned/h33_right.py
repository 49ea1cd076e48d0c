"""right: a bidirectional GRU classifier under DDP with gradient clipping after the backward; each sequence is processed by itself."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(34)
X = torch.randn(72, 6, 4, generator=g)
y = torch.randint(3, (72,), generator=g)


class SeqClassifier(nn.Module):
    def __init__(self, inp=4, hid=8, classes=3):
        super().__init__()
        self.rnn = nn.GRU(inp, hid, batch_first=True, bidirectional=True)
        self.attn = nn.Linear(2 * hid, 1, bias=False)
        self.fc = nn.Linear(2 * hid, classes)

    def forward(self, x):
        out, _ = self.rnn(x)
        w = self.attn(out).softmax(dim=1)
        return self.fc((w * out).sum(1))


def make_net():
    return SeqClassifier()


def train(net, batches):
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for seq, label in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(seq), label)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm_type=2)
        optimizer.step()
