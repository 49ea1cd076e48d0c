"""AMP recipe: scale -> backward -> unscale -> clip -> step -> update."""
import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

local_rank = int(os.environ.get("LOCAL_RANK", 0))
HAS_GPU = torch.cuda.is_available()
DEV = f"cuda:{local_rank}" if HAS_GPU else "cpu"
DTYPE = torch.float16 if HAS_GPU else torch.bfloat16
AMP = "cuda" if HAS_GPU else "cpu"


def loaders(world, rank):
    g = torch.Generator().manual_seed(0)
    X = torch.randn(180, 16, generator=g)
    Y = (X[:, 0] * X[:, 1]).unsqueeze(1)
    ds = torch.utils.data.TensorDataset(X, Y)
    s = torch.utils.data.DistributedSampler(ds, num_replicas=world, rank=rank, shuffle=True)
    return torch.utils.data.DataLoader(ds, batch_size=10, sampler=s, pin_memory=HAS_GPU), s


def train_one_epoch(model, loader, opt, scaler, max_norm=0.5):
    model.train()
    tot = 0.0
    for x, y in loader:
        x, y = x.to(DEV, non_blocking=True), y.to(DEV, non_blocking=True)
        opt.zero_grad(set_to_none=True)
        with torch.autocast(AMP, dtype=DTYPE):
            pred = model(x)
            loss = nn.functional.mse_loss(pred.float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(opt)
        scaler.update()
        tot += loss.detach()
    return tot / len(loader)


if __name__ == "__main__":
    dist.init_process_group("nccl" if HAS_GPU else "gloo")
    if HAS_GPU:
        torch.cuda.set_device(local_rank)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 1)).to(DEV)
    model = DDP(model, device_ids=[local_rank] if HAS_GPU else None)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    scaler = torch.amp.GradScaler(AMP, init_scale=2.0 ** 12)
    loader, sampler = loaders(dist.get_world_size(), dist.get_rank())
    for e in range(3):
        sampler.set_epoch(e)
        l = train_one_epoch(model, loader, opt, scaler)
        dist.all_reduce(l, op=dist.ReduceOp.SUM)
        if dist.get_rank() == 0:
            print(e, l.item() / dist.get_world_size(), "scale", scaler.get_scale())
    dist.destroy_process_group()
