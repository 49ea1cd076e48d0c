"""right: stochastic weight averaging: plain DDP training with SWALR, and an AveragedModel that is updated from identical weights on every rank and never feeds back into training."""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import SWALR, AveragedModel

torch.manual_seed(26)
X = torch.randn(96, 1, 12)
y = (X.squeeze(1)[:, :6].sum(1) > X.squeeze(1)[:, 6:].sum(1)).long()


class Conv1dNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 8, 5, padding=2), nn.InstanceNorm1d(8, affine=True), nn.ReLU(),
            nn.Conv1d(8, 8, 3, dilation=2, padding=2, groups=2), nn.ReLU(),
            nn.AdaptiveMaxPool1d(3), nn.Flatten(), nn.Linear(24, 2),
        )

    def forward(self, x):
        return self.net(x)


def make_net():
    return Conv1dNet()


SWA_START = 1


def train(net, batches):
    model = DDP(net)
    swa_model = AveragedModel(model.module)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5)
    swa_sched = SWALR(opt, swa_lr=0.02, anneal_epochs=2)
    for it, (xb, yb) in enumerate(batches):
        opt.zero_grad()
        nn.functional.cross_entropy(model(xb), yb).backward()
        opt.step()
        if it >= SWA_START:
            swa_model.update_parameters(model.module)
            swa_sched.step()
        else:
            cosine.step()
    return swa_model
