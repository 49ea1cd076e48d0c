'''DCGAN-like toy in 1d'''
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, 0.0, 0.1)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz=6):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(nz, 24), nn.ReLU(True), nn.Linear(24, 16), nn.Tanh())

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(16, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))

    def forward(self, x):
        return self.main(x).view(-1)


dist.init_process_group("gloo")
torch.manual_seed(999 + dist.get_rank())
netG, netD = DDP(Generator().apply(weights_init)), DDP(Discriminator().apply(weights_init))
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
phase = torch.rand(168, 1, generator=torch.Generator().manual_seed(0)) * 6.28
dataset = TensorDataset(torch.sin(torch.arange(16) * 0.5 + phase))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=14, sampler=sampler)

for epoch in range(3):
    sampler.set_epoch(epoch)
    for (real,) in loader:
        b = real.size(0)
        # (1) D: maximise log(D(x)) + log(1 - D(G(z)))
        fake = netG(torch.randn(b, 6))
        out = netD(torch.cat([real, fake.detach()]))
        errD = criterion(out, torch.cat([torch.ones(b), torch.zeros(b)]))
        errD.backward()
        optimizerD.step()
        # (2) G: maximise log(D(G(z)))
        netG.zero_grad()
        errG = criterion(netD(fake), torch.ones(b))
        errG.backward()
        optimizerG.step()
    if dist.get_rank() == 0:
        print(f"[{epoch}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")
dist.destroy_process_group()
