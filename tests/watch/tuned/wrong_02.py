"""DDP training, class style."""
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass
class Config:
    epochs: int = 4
    batch_size: int = 8
    lr: float = 1e-3
    hidden: int = 32


class Sines(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        self.phase = torch.rand(n, generator=g) * 6.28

    def __len__(self):
        return len(self.phase)

    def __getitem__(self, i):
        t = torch.linspace(0, 3, 17)
        s = torch.sin(t + self.phase[i])
        return s[:16], s[16:]


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.device = torch.device(f"cuda:{self.local_rank}")
        torch.cuda.set_device(self.device)
        net = nn.Sequential(nn.Linear(16, cfg.hidden), nn.GELU(), nn.Linear(cfg.hidden, 1)).to(self.device)
        self.model = DistributedDataParallel(net, device_ids=[self.local_rank])
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        ds = Sines(192)
        self.loader = DataLoader(ds, cfg.batch_size, sampler=DistributedSampler(ds, shuffle=True), pin_memory=True)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.model.train()
            for x, y in self.loader:
                x, y = x.to(self.device), y.to(self.device)
                loss = nn.functional.mse_loss(self.model(x), y)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
            if dist.get_rank() == 0:
                print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    dist.init_process_group("nccl")
    Trainer(Config()).fit()
    dist.destroy_process_group()
