"""right: a home-made wrapper registers a tensor hook per parameter that returns the all-reduced mean of the incoming gradient; graph and hook order are the same on all ranks and there is one backward per step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(53)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class MyDataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.world = dist.get_world_size()
        for t in module.state_dict().values():
            dist.broadcast(t, 0)
        for p in module.parameters():
            if p.requires_grad:
                p.register_hook(self._mean)

    def _mean(self, grad):
        out = grad.detach().clone()
        dist.all_reduce(out)
        return out / self.world

    def forward(self, *args):
        return self.module(*args)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def train(net, batches):
    model = MyDataParallel(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
