"""right: multi-task learning with learned uncertainty weights that live inside the wrapped module, so they are synchronised with the rest."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

gen = torch.Generator().manual_seed(33)
X = torch.randn(96, 7, generator=gen)
y = torch.stack([torch.randn(96, generator=gen), torch.randint(3, (96,), generator=gen).to(torch.get_default_dtype())], 1)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(7, 20), nn.ReLU())
        self.reg, self.cls = nn.Linear(20, 1), nn.Linear(20, 3)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x, targets):
        h = self.shared(x)
        l_reg = F.mse_loss(self.reg(h).squeeze(-1), targets[:, 0].to(h.dtype))
        l_cls = F.cross_entropy(self.cls(h), targets[:, 1].long())
        losses = torch.stack([l_reg, l_cls])
        return (torch.exp(-self.log_var) * losses + self.log_var).sum(), losses.detach()


def make_net():
    return MultiTask()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for x, t in batches:
        total, parts = model(x, t)
        opt.zero_grad()
        total.backward()
        opt.step()
