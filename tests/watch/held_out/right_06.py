from contextlib import nullcontext
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

ACCUM = 4


def dataset():
    torch.manual_seed(99)
    x = torch.randn(180, 1, 8, 8)
    y = (x.mean((1, 2, 3)) > 0).long()
    return TensorDataset(x, y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.GroupNorm(2, 6)
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


dist.init_process_group("gloo")
ds = dataset()
model = DDP(Net())
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
sampler = DistributedSampler(ds, shuffle=True, drop_last=True)
loader = DataLoader(ds, batch_size=5, sampler=sampler)
crit = nn.CrossEntropyLoss()

for ep in range(3):
    sampler.set_epoch(ep)
    n_batches = len(loader)
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        last_of_window = (i + 1) % ACCUM == 0 or i + 1 == n_batches
        # the final window of an epoch may be shorter
        start = (i // ACCUM) * ACCUM
        window = min(ACCUM, n_batches - start)
        ctx = nullcontext() if last_of_window else model.no_sync()
        with ctx:
            loss = crit(model(x), y) / window
            loss.backward()
        if last_of_window:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
    if dist.get_rank() == 0:
        print("epoch", ep, "loss", loss.item() * window)
dist.destroy_process_group()
