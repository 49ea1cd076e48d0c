# tiny GAN on a ring of gaussians, two DDP networks, two optimizers
import math, os
import torch, torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group('gloo')
rank, world = dist.get_rank(), dist.get_world_size()

def ring(n):
    g = torch.Generator().manual_seed(5)
    k = torch.randint(0, 8, (n,), generator=g).float() * (2 * math.pi / 8)
    return torch.stack([k.cos(), k.sin()], 1) * 2 + 0.05 * torch.randn(n, 2, generator=g)

torch.manual_seed(1000 + rank)   # noise must differ on each process, DDP broadcasts the weights
nz = 4
G = nn.Sequential(nn.Linear(nz, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
G, D = DistributedDataParallel(G), DistributedDataParallel(D)
optG = torch.optim.Adam(G.parameters(), 1e-3, betas=(0.5, 0.999))
optD = torch.optim.Adam(D.parameters(), 1e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()

data = TensorDataset(ring(240))
sampler = DistributedSampler(data)
loader = DataLoader(data, 20, sampler=sampler, drop_last=True)

for epoch in range(3):
    sampler.set_epoch(epoch)
    for (real,) in loader:
        n = real.size(0)
        # --- D: real and fake in a single forward
        with torch.no_grad():
            fake = G(torch.randn(n, nz))
        logits = D(torch.cat([real, fake]))
        target = torch.cat([torch.ones(n, 1), torch.zeros(n, 1)])
        lossD = bce(logits, target)
        optD.zero_grad()
        lossD.backward()
        optD.step()
        # --- G
        for p in D.parameters():
            p.requires_grad_(False)
        lossG = bce(D.module(G(torch.randn(n, nz))), torch.ones(n, 1))
        optG.zero_grad()
        lossG.backward()
        optG.step()
        for p in D.parameters():
            p.requires_grad_(True)
    if rank == 0:
        print('epoch', epoch, 'D', round(lossD.item(), 4), 'G', round(lossG.item(), 4))
dist.destroy_process_group()
