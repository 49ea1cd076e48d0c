import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    c = torch.tensor([[0., 2.], [2., 0.], [-2., -2.]])
    return TensorDataset(c[y] + torch.randn(n, 2, generator=g), y)


def evaluate(net, loader):
    net.eval()
    ok = tot = 0
    with torch.no_grad():
        for x, y in loader:
            ok += (net(x).argmax(1) == y).sum().item()
            tot += len(y)
    net.train()
    return ok / tot


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    train, val = blobs(216, 1), blobs(50, 2)
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=12, sampler=sampler)
    val_loader = DataLoader(val, batch_size=25)  # full set, only used on rank 0
    net = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    ddp = DDP(net)
    opt = torch.optim.Adam(ddp.parameters(), lr=0.01)
    best = 0.0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            opt.zero_grad()
            nn.functional.cross_entropy(ddp(x), y).backward()
            opt.step()
        # buffers of rank 0 are the ones that DDP broadcasts, so rank 0 tests the plain module
        if rank == 0:
            acc = evaluate(ddp.module, val_loader)
            if acc > best:
                best = acc
                torch.save(ddp.module.state_dict(), "ho_r09_best.pt")
            print(f"epoch {epoch} acc {acc:.3f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
