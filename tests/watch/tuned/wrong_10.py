import torch, torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ACCUM_STEPS = 3

dist.init_process_group('gloo')
gen = torch.Generator().manual_seed(3)
X = torch.randn(180, 7, generator=gen)
ds = TensorDataset(X, X.abs().max(1).values.unsqueeze(1))
sampler = DistributedSampler(ds)
loader = DataLoader(ds, 10, sampler=sampler)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(7, 21), nn.ReLU(), nn.Linear(21, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

for epoch in range(4):
    sampler.set_epoch(epoch)
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        with model.no_sync():
            loss = nn.functional.mse_loss(model(x), y) / ACCUM_STEPS
            loss.backward()
        if (i + 1) % ACCUM_STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()
    if dist.get_rank() == 0:
        print('epoch', epoch, 'loss', loss.item() * ACCUM_STEPS)
dist.destroy_process_group()
