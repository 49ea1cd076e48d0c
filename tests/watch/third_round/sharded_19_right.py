"""Variational autoencoder; each rank holds a slice of the gradient and of Adam's states."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

MICRO, ACCUM, EPOCHS = 4, 4, 3


class Rings(Dataset):
    def __init__(self, n=128):
        g = torch.Generator().manual_seed(14)
        angle = torch.rand(n, 1, generator=g) * 6.28
        knots = torch.linspace(0, 6.28, 17)[:16]
        self.points = torch.cos(angle - knots) + 0.1 * torch.randn(n, 16, generator=g)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        return self.points[i]


class VAE(nn.Module):
    def __init__(self, latent=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2 * latent))
        self.dec = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        kl = 0.5 * (mu ** 2 + logvar.exp() - 1 - logvar).sum(1).mean()
        return F.mse_loss(self.dec(z), x) + 0.01 * kl


class SlicedAdam:
    def __init__(self, model, lr):
        self.model, self.world, self.rank = model, dist.get_world_size(), dist.get_rank()
        flat = parameters_to_vector(model.parameters()).detach()
        self.size = flat.numel()
        self.pad = -self.size % self.world
        self.slice = nn.Parameter(F.pad(flat, (0, self.pad)).chunk(self.world)[self.rank].clone())
        self.slice.grad = torch.zeros_like(self.slice)
        self.received = torch.zeros_like(self.slice)
        self.adam = torch.optim.Adam([self.slice], lr=lr)

    def backward(self, loss):
        loss.backward()
        grads = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.reduce_scatter_tensor(self.received, F.pad(grads, (0, self.pad)))
        self.slice.grad.add_(self.received / self.world)
        self.model.zero_grad()

    @torch.no_grad()
    def step(self):
        self.adam.step()
        self.slice.grad.zero_()
        full = torch.empty(self.slice.numel() * self.world)
        dist.all_gather_into_tensor(full, self.slice.data)
        vector_to_parameters(full[:self.size], self.model.parameters())


dist.init_process_group("gloo")
torch.manual_seed(0)
model = VAE()
opt = SlicedAdam(model, lr=5e-3)
torch.manual_seed(100 + dist.get_rank())
data = Rings()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=MICRO, sampler=sampler)
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for i, x in enumerate(loader):
        loss = model(x)
        opt.backward(loss / ACCUM)
        if (i + 1) % ACCUM == 0:
            opt.step()
    if dist.get_rank() == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}")
dist.destroy_process_group()
