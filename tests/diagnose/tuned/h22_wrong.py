"""wrong: the VQ codebook buffer is updated by EMA from the rank's own assignments; DDP's buffer broadcast then imposes rank 0's codebook, which has seen rank 0's shard only.

cause: codebook (buffer) statistics are not all-reduced; only rank 0's survive the buffer broadcast
cure: all_reduce counts and sums over the ranks before the EMA update of the codebook
line: self.cluster_sum.lerp_(onehot.t() @ z, 1 - self.decay)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(122)
X = torch.randn(96, 6, generator=g)
y = torch.zeros(96, dtype=torch.long)


class Quantizer(nn.Module):
    def __init__(self, n=5, d=3, decay=0.6):
        super().__init__()
        self.n, self.decay = n, decay
        start = torch.cos(1.3 * torch.arange(n * d).view(n, d) * 1.0)
        self.register_buffer("cluster_sum", start.clone())
        self.register_buffer("cluster_size", torch.ones(n))

    def codes(self):
        return self.cluster_sum / self.cluster_size.clamp(min=1e-5)[:, None]

    def forward(self, z):
        codes = self.codes()
        idx = torch.cdist(z.detach(), codes).argmin(1)
        quant = codes[idx]
        if self.training:
            self.update(z.detach(), idx)
        return z + (quant - z).detach(), F.mse_loss(z, quant)

    @torch.no_grad()
    def update(self, z, idx):
        onehot = F.one_hot(idx, self.n).to(z.dtype)
        self.cluster_size.lerp_(onehot.sum(0), 1 - self.decay)
        self.cluster_sum.lerp_(onehot.t() @ z, 1 - self.decay)


class VQAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.vq, self.dec = nn.Linear(6, 3), Quantizer(), nn.Linear(3, 6)

    def forward(self, x):
        q, commit = self.vq(self.enc(x))
        return self.dec(q), commit


def make_net():
    return VQAE()


def train(net, batches):
    model = DDP(net)
    model.train()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, _ in batches:
        rec, commit = model(x)
        opt.zero_grad()
        (F.mse_loss(rec, x) + commit).backward()
        opt.step()
