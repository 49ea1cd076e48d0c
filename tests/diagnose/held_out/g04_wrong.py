"""wrong: in gradient accumulation the first micro-batch is synchronised and the later ones run under no_sync, so the gradients of all but the first micro-batch are never averaged over ranks.

cause: no_sync condition is the wrong way round: the last micro-batch is not the one that synchronises
cure: use no_sync for all micro-batches except the last one (i < ACCUM - 1)
line: ctx = model.no_sync() if i > 0 else contextlib.nullcontext()
"""
import contextlib

import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(40)
X = torch.randn(96, 3, 5, 5)
y = torch.randint(0, 4, (96,))
ACCUM = 2


def make_net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(),
        nn.Conv2d(8, 8, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(8, 4),
    )


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss(reduction="sum")
    for images, labels in batches:
        opt.zero_grad()
        n = images.shape[0]
        for i, (im, lab) in enumerate(zip(images.chunk(ACCUM), labels.chunk(ACCUM))):
            # skip the all-reduce while accumulating
            ctx = model.no_sync() if i > 0 else contextlib.nullcontext()
            with ctx:
                loss = loss_fn(model(im), lab) / n
                loss.backward()
        opt.step()
