"""right: CLIP with local rows against all columns: features are gathered with a gradient-carrying all_gather, labels are offset by the rank, and the mean over local rows averaged by DDP is the loss over the whole minibatch."""
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(19)
latent = torch.randn(96, 5)
X = torch.cat([latent @ torch.randn(5, 9), latent @ torch.randn(5, 7)], 1)   # "image" | "text"
y = torch.arange(96)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.img = nn.Sequential(nn.Linear(9, 16), nn.GELU(), nn.Linear(16, 8))
        self.txt = nn.Sequential(nn.Linear(7, 16), nn.GELU(), nn.Linear(16, 8))
        self.logit_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        a = F.normalize(self.img(x[:, :9]), dim=-1)
        b = F.normalize(self.txt(x[:, 9:]), dim=-1)
        return a, b, self.logit_scale.exp()


def make_net():
    return TwoTower()


def clip_loss(a, b, scale):
    rank, n = dist.get_rank(), a.size(0)
    all_a = torch.cat(torch.distributed.nn.all_gather(a), dim=0)
    all_b = torch.cat(torch.distributed.nn.all_gather(b), dim=0)
    labels = torch.arange(n, device=a.device) + rank * n
    per_img = scale * a @ all_b.t()
    per_txt = scale * b @ all_a.t()
    return (F.cross_entropy(per_img, labels) + F.cross_entropy(per_txt, labels)) / 2


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.2},
            {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=2e-3, betas=(0.9, 0.98), eps=1e-6,
    )
    for x, _ in batches:
        opt.zero_grad()
        clip_loss(*model(x)).backward()
        opt.step()
        with torch.no_grad():
            model.module.logit_scale.clamp_(0, 4.6)
