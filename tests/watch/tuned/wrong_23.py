'''asynchronous bucket all-reduce, no torch DDP'''
import torch, torch.nn as nn, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

class Classifier(nn.Module):
    def __init__(self, din, dh, k):
        super().__init__()
        self.inp = nn.Linear(din, dh)
        self.hid = nn.ModuleList([nn.Linear(dh, dh) for _ in range(2)])
        self.out = nn.Linear(dh, k)
    def forward(self, x):
        h = torch.relu(self.inp(x))
        for l in self.hid:
            h = h + torch.relu(l(h))
        return self.out(h)

def step(model, opt, x, y, world):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    for w in works: w.wait()
    for p in model.parameters(): p.grad.mul_(1.0 / world)
    opt.step()
    return loss

if __name__ == '__main__':
    dist.init_process_group('gloo')
    world, rank = dist.get_world_size(), dist.get_rank()
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(216, 8, generator=gen)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()
    ds = TensorDataset(x, y)
    samp = DistributedSampler(ds)
    dl = DataLoader(ds, 12, sampler=samp)
    model = Classifier(8, 16, 2)
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for e in range(3):
        samp.set_epoch(e)
        for x, y in dl:
            l = step(model, opt, x, y, world)
        print(rank, e, l.item())
    dist.destroy_process_group()
