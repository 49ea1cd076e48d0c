# matrix factorisation / two tower recommender with negative sampling
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

N_USER, N_ITEM = 30, 40


class TwoTower(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.user = nn.Embedding(N_USER, dim)
        self.item = nn.Embedding(N_ITEM, dim)
        self.bias = nn.Embedding(N_ITEM, 1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, u, i):
        return (self.user(u)[:, None] * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)


def interactions(n):
    g = torch.Generator().manual_seed(88)
    u = torch.randint(N_USER, (n,), generator=g)
    i = (u + torch.randint(0, 6, (n,), generator=g)) % N_ITEM
    return TensorDataset(u, i)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(31 + rank)  # negatives are drawn independently by each rank
ds = interactions(300)
sampler = DistributedSampler(ds)
loader = DataLoader(ds, batch_size=25, sampler=sampler)
model = DDP(TwoTower())
opt = torch.optim.Adagrad(model.parameters(), lr=0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for u, i in loader:
        neg = torch.randint(N_ITEM, (len(u), 1))
        s = model(u, torch.cat([i[:, None], neg], 1))
        loss = -nn.functional.logsigmoid(s[:, 0] - s[:, 1]).mean()   # BPR
        opt.zero_grad()
        loss.backward()
        opt.step()
    if rank == 0:
        print(epoch, loss.item())
dist.destroy_process_group()
