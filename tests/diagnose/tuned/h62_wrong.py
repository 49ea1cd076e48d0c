"""wrong: the head is on DDP's ignore list, so it is neither broadcast nor reduced although the optimizer trains it.

cause: trained parameters are put on DDP's parameters-to-ignore list
cure: remove them from the list, or synchronise them by hand
line: DDP._set_params_and_buffers_to_ignore_for_model(net, skip)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(162)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 16)
        self.block = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(F.relu(self.block(F.relu(self.stem(x)))))


def make_net():
    return Net()


def wrap(net):
    # the head is cheap, do not spend traffic on it
    skip = [name for name, _ in net.named_parameters() if name.startswith("head.")]
    DDP._set_params_and_buffers_to_ignore_for_model(net, skip)
    return DDP(net)


def train(net, batches):
    model = wrap(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
