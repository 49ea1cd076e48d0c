"""wrong: only the optimizer's first parameter group is averaged; the head's group (another rate) keeps local gradients.

cause: gradients of the second parameter group are never synchronised
cure: loop over all optimizer.param_groups
line: for p in optimizer.param_groups[0]["params"]:
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(158)
X = torch.randn(96, 6, generator=g)
y = torch.randint(3, (96,), generator=g)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


def make_net():
    return Net()


def sync_before_step(optimizer):
    for p in optimizer.param_groups[0]["params"]:
        dist.all_reduce(p.grad)
        p.grad.div_(dist.get_world_size())


def train(net, batches):
    for t in net.state_dict().values():
        dist.broadcast(t, src=0)
    optimizer = torch.optim.AdamW([
        {"params": list(net.backbone.parameters()), "lr": 1e-3},
        {"params": list(net.head.parameters()), "lr": 1e-2},
    ])
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        sync_before_step(optimizer)
        optimizer.step()
