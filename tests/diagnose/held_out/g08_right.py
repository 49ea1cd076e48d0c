"""right: a frozen backbone with bottleneck adapters that are put in when the net is built, before DDP sees it; only adapters and head require gradients and only they are given to the optimizer."""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(88)
X = torch.randn(96, 14)
y = torch.sin(X[:, :2]) + X[:, 2:4] ** 2


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear, r: int = 3):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.out_features, r)
        self.up = nn.Linear(r, base.out_features)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        h = self.base(x)
        return h + self.up(torch.relu(self.down(h)))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(14, 20)
        self.l2 = nn.Linear(20, 20)
        self.norm = nn.LayerNorm(20)
        self.head = nn.Linear(20, 2)

    def forward(self, x):
        return self.head(self.norm(torch.tanh(self.l2(torch.tanh(self.l1(x))))))


def make_net():
    net = Backbone()
    for p in net.parameters():
        p.requires_grad = False
    net.l1 = Adapter(net.l1)
    net.l2 = Adapter(net.l2)
    for p in net.head.parameters():
        p.requires_grad = True
    return net


def train(net, batches):
    model = DDP(net)
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.Adam(trainable, lr=1e-2)
    mse = nn.MSELoss()
    for xb, yb in batches:
        opt.zero_grad()
        mse(model(xb), yb).backward()
        opt.step()
