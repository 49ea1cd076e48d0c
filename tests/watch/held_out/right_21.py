"""DDP with a compressing communication hook (fp16 on the wire), written by hand."""
import argparse, os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--bs", type=int, default=8)
parser.add_argument("--lr", type=float, default=1e-2)
args = parser.parse_args()


def half_hook(process_group, bucket):
    group = process_group if process_group is not None else dist.group.WORLD
    world = group.size()
    small = bucket.buffer().to(torch.float16).div_(world)
    fut = dist.all_reduce(small, group=group, async_op=True).get_future()

    def decompress(fut):
        out = bucket.buffer()
        out.copy_(fut.value()[0])
        return out

    return fut.then(decompress)


def endless(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(40)
    x = torch.randn(192, 10, generator=g)
    y = torch.cat([x[:, :5] * x[:, 5:], x.sum(1, True)], 1)
    ds = torch.utils.data.TensorDataset(x, y)
    sampler = torch.utils.data.DistributedSampler(ds)
    it = endless(torch.utils.data.DataLoader(ds, args.bs, sampler=sampler), sampler)
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(10, 40), nn.ELU(), nn.Linear(40, 6)), bucket_cap_mb=1)
    model.register_comm_hook(None, half_hook)
    opt = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    for step in range(args.steps):
        xb, yb = next(it)
        loss = nn.functional.huber_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(step, loss.item())
    dist.destroy_process_group()


main()
