"""fp16 compression hook for DDP."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def half_hook(group, bucket):
    group = group if group is not None else dist.group.WORLD
    buf = bucket.buffer().to(torch.float16)
    fut = dist.all_reduce(buf, group=group, async_op=True).get_future()

    def decompress(f):
        out = bucket.buffer()
        out.copy_(f.value()[0])
        return out

    return fut.then(decompress)


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(1)
    x = torch.randn(162, 12, generator=g)
    y = (x[:, ::3].sum(1) > 0).long()
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=9, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 2)))
    model.register_comm_hook(None, half_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
