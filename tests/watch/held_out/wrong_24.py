import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def attach_allreduce(model):
    """returns the list of handles; gradients are exchanged as soon as they are computed"""
    handles = []

    def hook(grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad

    for p in model.parameters():
        handles.append(p.register_hook(hook))
    return handles


class Pairs(Dataset):
    """siamese verification: are the two vectors from the same class?"""

    def __init__(self, n=198):
        g = torch.Generator().manual_seed(6)
        centers = torch.randn(6, 10, generator=g)
        a, b = torch.randint(0, 6, (n,), generator=g), torch.randint(0, 6, (n,), generator=g)
        b = torch.where(torch.arange(n) % 2 == 0, a, b)
        self.l = centers[a] + 0.3 * torch.randn(n, 10, generator=g)
        self.r = centers[b] + 0.3 * torch.randn(n, 10, generator=g)
        self.same = (a == b).float()

    def __len__(self):
        return len(self.same)

    def __getitem__(self, i):
        return self.l[i], self.r[i], self.same[i]


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 8))

    def forward(self, l, r):
        return (self.f(l) - self.f(r)).pow(2).sum(1)


def contrastive(d2, same, margin=2.0):
    d = (d2 + 1e-9).sqrt()
    return (same * d2 + (1 - same) * torch.clamp(margin - d, min=0).pow(2)).mean()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    net = Siamese()
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    attach_allreduce(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    ds = Pairs()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=11, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for l, r, s in loader:
            opt.zero_grad()
            loss = contrastive(net(l, r), s)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()
