"""wrong: a Lightning-like training_step method is called on ddp.module, which skips DDP's forward, so no gradient is averaged.

cause: the method of the inner module is called, bypassing DDP.forward
cure: make the loss part of forward() and call the wrapper: loss = ddp(x, y)
line: loss = ddp.module.training_step((x, y), step)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(110)
X = torch.randn(96, 6, generator=g)
y = torch.randint(2, (96,), generator=g)


class LitClassifier(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.encoder = nn.Linear(6, hidden)
        self.classifier = nn.Linear(hidden, 2)
        self.logged = {}

    def forward(self, x):
        return self.classifier(torch.relu(self.encoder(x)))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.logged[batch_idx] = loss.item()
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def make_net():
    return LitClassifier()


def train(net, batches):
    ddp = DDP(net)
    opt = ddp.module.configure_optimizers()
    for step, (x, y) in enumerate(batches):
        loss = ddp.module.training_step((x, y), step)
        opt.zero_grad()
        loss.backward()
        opt.step()
