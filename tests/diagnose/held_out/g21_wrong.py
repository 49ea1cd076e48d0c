"""wrong: a rank skips the optimizer step when its own loss spikes; with one corrupted example only the rank that holds it skips, the others step, and the replicas drift apart.

cause: the decision to skip the step is made from the local loss, so ranks decide differently
cure: all_reduce the loss (or the flag) before deciding, so that all ranks skip together
line: if loss.item() > SPIKE:
"""
import logging

import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger(__name__)

torch.manual_seed(211)
X = torch.randn(96, 5)
y = X.sum(1, keepdim=True).tanh()
y[37] = -300.0    # a sensor glitch somewhere in the middle

SPIKE = 200.0


def make_net():
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, (xb, yb) in enumerate(batches):
        opt.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(xb), yb)
        loss.backward()
        if loss.item() > SPIKE:
            log.warning("step %d: loss spike %.1f, skipping", step, loss.item())
            continue
        opt.step()
