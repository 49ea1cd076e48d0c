# uneven inputs handled with Join
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
g = torch.Generator().manual_seed(61)
N, BS = 201, 10
X = torch.randn(N, 5, generator=g)
Y = (X * torch.arange(1., 6.)).sum(1, keepdim=True)
bounds = [round(N * k / world) for k in range(world + 1)]
shard = torch.utils.data.TensorDataset(X[bounds[rank]:bounds[rank + 1]], Y[bounds[rank]:bounds[rank + 1]])
loader = torch.utils.data.DataLoader(shard, batch_size=BS, shuffle=True)   # the number of batches may differ by one
torch.manual_seed(rank)
model = DDP(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)))
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(3):
    with model.join():
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            opt.step()
    if rank == 0:
        print("epoch", epoch, "loss", loss.item())
dist.destroy_process_group()
