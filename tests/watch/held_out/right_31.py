# knowledge distillation: teacher is not wrapped (never trained), student is
import os, random
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, DistributedSampler

rank = int(os.environ["RANK"]); world = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=world)

TEMPERATURE, ALPHA = 3.0, 0.7


class Noisy(Dataset):
    """gaussian noise augmentation, different per rank and per visit"""
    def __init__(self, n=192):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, 16, generator=g)
        self.y = (self.x[:, :2].sum(1) > 0).long() + (self.x[:, 2:4].sum(1) > 0).long()
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return self.x[i] + 0.1 * torch.randn(16), self.y[i]


def make(width):
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 3))


torch.manual_seed(77)
teacher = make(96).eval().requires_grad_(False)          # same on all ranks: seeded
student = DDP(make(12))
torch.manual_seed(77 + 13 * rank); random.seed(rank)     # from now on each rank has its own noise

train = Noisy()
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=12, sampler=sampler, drop_last=True)
opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

for epoch in range(3):
    sampler.set_epoch(epoch)
    student.train()
    for x, y in loader:
        with torch.no_grad():
            t = teacher(x)
        s = student(x)
        kd = F.kl_div(F.log_softmax(s / TEMPERATURE, 1), F.softmax(t / TEMPERATURE, 1), reduction="batchmean") * TEMPERATURE ** 2
        loss = ALPHA * kd + (1 - ALPHA) * F.cross_entropy(s, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    m = torch.stack([kd.detach(), loss.detach()])
    dist.all_reduce(m)
    if rank == 0:
        print(epoch, (m / world).tolist())

dist.destroy_process_group()
