"""wrong: two forwards through the wrapper are followed by two separate backwards; the reducer is armed once, so only the first backward is synchronised and the second adds local gradients.

cause: two forwards then two backwards through one DDP wrapper; the second backward is not reduced
cure: add the two losses and call backward once (or do forward/backward one after the other)
line: loss_noisy.backward()
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(140)
clean = torch.randn(96, 6, generator=g)
X = torch.cat([clean, clean + 0.3 * torch.randn(96, 6, generator=g)], 1)
y = torch.randint(3, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        x_clean, x_noisy = x.chunk(2, dim=1)
        out_clean = model(x_clean)
        out_noisy = model(x_noisy)
        loss_clean = F.cross_entropy(out_clean, y)
        loss_noisy = F.cross_entropy(out_noisy, y)

        opt.zero_grad()
        loss_clean.backward()
        loss_noisy.backward()
        opt.step()
