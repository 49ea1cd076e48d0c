# parameter server style: gradients are reduced to rank 0, rank 0 steps, weights are broadcast
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

class Server:
    def __init__(self, net, lr):
        self.net, self.rank, self.size = net, dist.get_rank(), dist.get_world_size()
        self.opt = torch.optim.Adam(net.parameters(), lr=lr) if self.rank == 0 else None
        self.pull()
    def pull(self):
        for p in self.net.parameters():
            dist.broadcast(p.data, 0)
    def push(self):
        for p in self.net.parameters():
            dist.reduce(p.grad, dst=0, op=dist.ReduceOp.SUM)
            if self.rank == 0:
                p.grad /= self.size
    def update(self):
        self.push()
        if self.rank == 0:
            self.opt.step()
        self.pull()

def main():
    dist.init_process_group('gloo')
    net = nn.Sequential(nn.Linear(4, 16), nn.Mish(), nn.Linear(16, 2))
    ps = Server(net, 5e-3)
    g = torch.Generator().manual_seed(70)
    x = torch.randn(156, 4, generator=g)
    ds = TensorDataset(x, (x.pow(2).sum(1) > 3.5).long())
    sampler = DistributedSampler(ds, drop_last=True)
    dl = DataLoader(ds, 13, sampler=sampler)
    for ep in range(3):
        sampler.set_epoch(ep)
        for xb, yb in dl:
            net.zero_grad()
            loss = nn.functional.cross_entropy(net(xb), yb)
            loss.backward()
            ps.update()
        if ps.rank == 0:
            print(ep, loss.item())
    dist.destroy_process_group()

main()
