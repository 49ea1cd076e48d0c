import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=world)


class Backprop:
    """backward + clipping + averaging in one place"""

    def __init__(self, params, max_norm):
        self.params = [p for p in params if p.requires_grad]
        self.max_norm = max_norm

    def __call__(self, loss):
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.params, self.max_norm)
        for p in self.params:
            dist.all_reduce(p.grad)
            p.grad.mul_(1.0 / world)
        return norm


torch.manual_seed(3)
xs = torch.randn(192, 10, 4)
ys = xs.cumsum(1)[:, -1, :2]
ds = TensorDataset(xs, ys)
sampler = DistributedSampler(ds, num_replicas=world, rank=rank)


class RNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(4, 20, batch_first=True)
        self.lin = nn.Linear(20, 2)

    def forward(self, x):
        return self.lin(self.rnn(x)[0][:, -1])


net = RNN()
for t in net.state_dict().values():
    dist.broadcast(t, src=0)
backprop = Backprop(net.parameters(), max_norm=0.5)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)

for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(ds, 12, sampler=sampler):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        norm = backprop(loss)
        opt.step()
    if rank == 0:
        print(f"epoch {epoch} loss {loss:.3f} norm {norm:.2f}")

dist.destroy_process_group()
