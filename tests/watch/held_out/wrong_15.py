import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class ToyQ(nn.Module):
    """regress Q-values from logged transitions (offline fitted Q iteration)"""

    def __init__(self, s=5, a=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(s, 32), nn.ReLU(), nn.Linear(32, a))

    def forward(self, s):
        return self.body(s)


def transitions(n=240):
    g = torch.Generator().manual_seed(33)
    s = torch.randn(n, 5, generator=g)
    a = torch.randint(0, 3, (n,), generator=g)
    r = s[torch.arange(n), a]
    return s, a, r, s + 0.1 * torch.randn(n, 5, generator=g)


def aggregate(net):
    world = dist.get_world_size()
    for p in net.parameters():
        dist.reduce(p.grad, dst=0, op=dist.ReduceOp.SUM)
        p.grad /= world


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net, target = ToyQ(), ToyQ()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    s, a, r, s2 = transitions()
    for epoch in range(3):
        order = torch.randperm(len(s), generator=torch.Generator().manual_seed(epoch))[rank::world]
        for idx in order.split(12):
            with torch.no_grad():
                y = r[idx] + 0.9 * target(s2[idx]).max(1).values
            q = net(s[idx]).gather(1, a[idx, None]).squeeze(1)
            loss = F.smooth_l1_loss(q, y)
            opt.zero_grad()
            loss.backward()
            aggregate(net)
            opt.step()
        target.load_state_dict(net.state_dict())
        if rank == 0:
            print("iteration", epoch, "td loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
