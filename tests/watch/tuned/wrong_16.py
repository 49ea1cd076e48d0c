import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
device = torch.device("cuda", local_rank)

g = torch.Generator().manual_seed(2)
x = torch.randn(144, 24, generator=g)
y = x.view(-1, 3, 8).sum(2).argmax(1)
ds = TensorDataset(x, y)
sampler = DistributedSampler(ds)
loader = DataLoader(ds, batch_size=12, sampler=sampler, pin_memory=True)

model = DDP(nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 3)).to(device), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.cuda.amp.GradScaler()

for epoch in range(3):
    sampler.set_epoch(epoch)
    for xb, yb in loader:
        xb, yb = xb.to(device), yb.to(device)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(xb), yb)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    if dist.get_rank() == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}")
dist.destroy_process_group()
