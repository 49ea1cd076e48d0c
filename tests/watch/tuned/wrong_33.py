import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 24), nn.BatchNorm1d(24), nn.ReLU(),
                                 nn.Linear(24, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))

    def forward(self, x):
        return self.net(x)


def run_eval(model, loader):
    model.eval()
    stats = torch.zeros(3)
    with torch.no_grad():
        for x, y in loader:
            o = model(x)
            stats += torch.tensor([nn.functional.cross_entropy(o, y, reduction="sum").item(),
                                   (o.argmax(1) == y).sum().item(), len(y)])
    dist.all_reduce(stats)
    return (stats[0] / stats[2]).item(), (stats[1] / stats[2]).item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(29)
    x = 3 * torch.randn(216, 9, generator=g) + 1
    y = x[:, :3].argmax(1)
    tr, va = TensorDataset(x[:168], y[:168]), TensorDataset(x[168:], y[168:])
    ts, vs = DistributedSampler(tr), DistributedSampler(va, shuffle=False)
    tl, vl = DataLoader(tr, 7, sampler=ts), DataLoader(va, 8, sampler=vs)
    # avoid the cost of sending buffers in each forward
    model = DDP(Net(), broadcast_buffers=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        ts.set_epoch(epoch)
        model.train()
        for xb, yb in tl:
            opt.zero_grad()
            nn.functional.cross_entropy(model(xb), yb).backward()
            opt.step()
        loss, acc = run_eval(model, vl)
        if rank == 0:
            print(f"epoch {epoch} val loss {loss:.4f} acc {acc:.3f}")
            torch.save(model.module.state_dict(), "ho_w33.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
