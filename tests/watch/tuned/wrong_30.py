"""distributed synchronous SGD, as in the old tutorial"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset


class Moons(Dataset):
    def __init__(self, n=204):
        g = torch.Generator().manual_seed(10)
        t = torch.rand(n, generator=g) * 3.14
        lab = (torch.rand(n, generator=g) > 0.5).long()
        sgn = 1.0 - 2.0 * lab
        self.x = torch.stack([t.cos() + 0.5 * lab, sgn * t.sin() + 0.25 * lab], 1)
        self.x += 0.1 * torch.randn(n, 2, generator=g)
        self.y = lab

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def average_gradients(model):
    world_size = dist.get_world_size()
    for p in model.parameters():
        if type(p) is torch.Tensor:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= world_size


def train(model, loader, epochs):
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for e in range(epochs):
        total = 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            average_gradients(model)
            opt.step()
            total += loss.item()
        print("rank %d epoch %d loss %.4f" % (dist.get_rank(), e, total / len(loader)))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    data = Moons()
    r, w = dist.get_rank(), dist.get_world_size()
    mine = Subset(data, list(range(len(data)))[r::w])
    train(net, DataLoader(mine, batch_size=17, shuffle=True), 3)
    dist.destroy_process_group()
