"""right: a VQ autoencoder whose codebook (a buffer) follows an EMA of counts and sums all-reduced over the ranks, so every replica keeps the single device's codebook."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

K, D = 6, 3
g = torch.Generator().manual_seed(61)
X = torch.randn(96, 5, generator=g)
y = torch.zeros(96, dtype=torch.long)


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(5, D), nn.Linear(D, 5)
        i = torch.arange(K * D).view(K, D) * 1.0
        self.register_buffer("codebook", torch.sin(2.1 * i))

    def forward(self, x):
        z = self.enc(x)
        idx = torch.cdist(z.detach(), self.codebook.clone()).argmin(1)
        q = self.codebook[idx]
        return self.dec(z + (q - z).detach()), F.mse_loss(z, q), z.detach(), idx

    @torch.no_grad()
    def ema(self, z, idx, decay=0.8):
        onehot = F.one_hot(idx, K).to(z.dtype)
        counts, sums = onehot.sum(0), onehot.t() @ z
        dist.all_reduce(counts)
        dist.all_reduce(sums)
        used = counts > 0
        mean = sums[used] / counts[used, None]
        self.codebook[used] = decay * self.codebook[used] + (1 - decay) * mean


def make_net():
    return VQ()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, _ in batches:
        rec, commit, z, idx = model(x)
        loss = F.mse_loss(rec, x) + 0.25 * commit
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.module.ema(z, idx)
