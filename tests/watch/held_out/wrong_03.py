import os, random
import numpy as np
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def seed_everything(seed=42):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)


def get_loaders(bs):
    X = np.random.randn(240, 6).astype(np.float32)
    Y = (X ** 2).sum(1, keepdims=True).astype(np.float32)
    ds = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return DataLoader(ds, batch_size=bs, shuffle=True, drop_last=True)


def main():
    seed_everything(42)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = get_loaders(20)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=3)
    for epoch in range(3):
        model.train()
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        sched.step()
        if rank == 0:
            print(f"[{epoch}] train mse {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
