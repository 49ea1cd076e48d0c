import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)

points = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0))
data = TensorDataset(points, (points.norm(dim=1) > 0.8).long())
train, test = random_split(data, [800, 200])
loader = DataLoader(train, batch_size=20, sampler=DistributedSampler(train))

net = torch.nn.Sequential(
    torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
net = DDP(net.cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
for epoch in range(20):
    for X, y in loader:
        loss = F.cross_entropy(net(X.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

with torch.no_grad():
    X, y = test[:]
    hits = (net.module(X.cuda()).argmax(1) == y.cuda()).float().mean()
if rank == 0:
    print(f"test accuracy {hits:.2f}")
dist.destroy_process_group()
