"""Train, save, resume: both halves in one file so that it can be tried at once."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

CKPT = "ho_r34_ckpt.pt"


def build():
    model = nn.Sequential(nn.Linear(11, 22), nn.ReLU(), nn.Linear(22, 1))
    ddp = DDP(model)
    opt = torch.optim.Adam(ddp.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
    return ddp, opt, sched


def save(epoch, ddp, opt, sched):
    if dist.get_rank() == 0:
        torch.save(dict(epoch=epoch, model=ddp.state_dict(), opt=opt.state_dict(), sched=sched.state_dict()), CKPT)
    dist.barrier()  # nobody reads before it is written


def load(ddp, opt, sched):
    c = torch.load(CKPT, map_location="cpu")
    ddp.load_state_dict(c["model"])
    opt.load_state_dict(c["opt"])
    sched.load_state_dict(c["sched"])
    return c["epoch"] + 1


def run(first, last, parts, sampler, loader):
    ddp, opt, sched = parts
    for epoch in range(first, last):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(ddp(x), y)
            loss.backward()
            opt.step()
        sched.step()
        save(epoch, *parts)
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", loss.item(), "lr", sched.get_last_lr()[0])


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0 and os.path.exists(CKPT):
        os.remove(CKPT)
    dist.barrier()
    g = torch.Generator().manual_seed(20)
    x = torch.randn(144, 11, generator=g)
    ds = TensorDataset(x, x.max(1, keepdim=True).values)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=12, sampler=sampler)
    run(0, 2, build(), sampler, loader)
    parts = build()
    run(load(*parts), 4, parts, sampler, loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
