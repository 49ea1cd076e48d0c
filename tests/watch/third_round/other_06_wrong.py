"""Half-precision MLP with loss scaling; run again with --resume FILE after an interruption."""
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def batches(size):
    g = torch.Generator().manual_seed(17)
    x = torch.randn(128, 16, generator=g)
    y = torch.sin(x @ torch.randn(16, 3, generator=g)) * 20
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, shuffle=True)
    return DataLoader(data, batch_size=size, sampler=sampler), sampler


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--resume", type=str, default="")
    ap.add_argument("--epochs", type=int, default=3)
    a = ap.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = "cpu"
    loader, sampler = batches(8)
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.8)
    scaler = torch.amp.GradScaler(device, init_scale=2.0 ** 16, growth_interval=1000)
    begin = 0
    if a.resume:
        pack = torch.load(a.resume, map_location=device)
        model.module.load_state_dict(pack["model"])
        optimizer.load_state_dict(pack["optimizer"])
        begin = pack["next"]
    for epoch in range(begin, a.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                out = model(x.to(device))
            loss = F.mse_loss(out.float(), y.to(device))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f} scale {scaler.get_scale():.0f}")
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                        "next": epoch + 1}, f"half_{epoch}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
