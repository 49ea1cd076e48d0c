"""right: after wrapping, the same 'pretrained' state (built from fixed values, the same on every rank) is loaded by all ranks, so the replicas stay equal."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(48)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def make_net():
    return Net()


def fake_checkpoint(like):
    """Stands for torch.load(path): every rank reads the same file."""
    state = {}
    for i, (k, v) in enumerate(like.state_dict().items()):
        grid = torch.arange(v.numel(), dtype=v.dtype).view_as(v)
        state["module." + k] = 0.3 * torch.sin(1.7 * grid + i)
    return state


def train(net, batches):
    model = DDP(net)
    model.load_state_dict(fake_checkpoint(net))
    dist.barrier()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-3)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
