import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def sync(model):
    """make sure that all workers have the same gradients"""
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)


dist.init_process_group("gloo")
rank = dist.get_rank()
g = torch.Generator().manual_seed(37)
pts = torch.rand(180, 2, generator=g) * 4 - 2
val = (-(pts ** 2).sum(1, keepdim=True)).exp()
ds = TensorDataset(pts, val)
sampler = DistributedSampler(ds, shuffle=True)
dl = DataLoader(ds, batch_size=15, sampler=sampler)
net = DDP(nn.Sequential(nn.Linear(2, 25), nn.Sigmoid(), nn.Linear(25, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.8)
for epoch in range(4):
    sampler.set_epoch(epoch)
    for x, y in dl:
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        sync(net)
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
    if rank == 0:
        print(f"epoch {epoch:02d} loss {loss.item():.5f}")
dist.destroy_process_group()
