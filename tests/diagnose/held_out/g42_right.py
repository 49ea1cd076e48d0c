"""right: a denoising autoencoder with Gaussian input noise as augmentation (random noise, different on every rank as it should be); apart from the draw of the noise the averaged gradient is that of the single device."""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(42)
codes = torch.randn(96, 3)
X = torch.tanh(codes @ torch.randn(3, 12))
y = X.clone()


class DAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))
        self.dec = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 12))

    def forward(self, x):
        return self.dec(self.enc(x))


def make_net():
    return DAE()


def corrupt(x, sigma):
    return x + sigma * torch.randn_like(x)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for clean, target in batches:
        recon = model(corrupt(clean, 0.02))
        loss = nn.functional.mse_loss(recon, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
