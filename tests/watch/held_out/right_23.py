from dataclasses import dataclass
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass
class Config:
    epochs: int = 3
    batch: int = 9
    max_lr: float = 1e-2
    wd: float = 0.05
    dim: int = 24


class Tabular(Dataset):
    def __init__(self, n=216):
        g = torch.Generator().manual_seed(55)
        self.cat = torch.randint(0, 6, (n, 3), generator=g)
        self.num = torch.randn(n, 4, generator=g)
        self.y = (self.cat[:, 0] > 2).float() + self.num[:, 1] * 0.5

    def __len__(self):
        return self.y.numel()

    def __getitem__(self, i):
        return {"cat": self.cat[i], "num": self.num[i], "y": self.y[i]}


class FTNet(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.emb = nn.ModuleList([nn.Embedding(6, d) for _ in range(3)])
        self.num = nn.Linear(4, d)
        self.norm = nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.Mish(), nn.Linear(2 * d, 1))

    def forward(self, cat, num):
        h = self.num(num) + sum(e(cat[:, k]) for k, e in enumerate(self.emb))
        return self.ff(self.norm(h)).squeeze(-1)


def param_groups(model, wd):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        (no_decay if p.ndim == 1 or "emb" in name else decay).append(p)
    return [{"params": decay, "weight_decay": wd}, {"params": no_decay, "weight_decay": 0.0}]


class Runner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.ds = Tabular()
        self.sampler = DistributedSampler(self.ds)
        self.loader = DataLoader(self.ds, cfg.batch, sampler=self.sampler)
        torch.manual_seed(0)
        self.model = nn.parallel.DistributedDataParallel(FTNet(cfg.dim), gradient_as_bucket_view=True)
        self.opt = torch.optim.AdamW(param_groups(self.model.module, cfg.wd), lr=cfg.max_lr)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, cfg.max_lr, epochs=cfg.epochs,
                                                         steps_per_epoch=len(self.loader))

    def fit(self):
        for ep in range(self.cfg.epochs):
            self.sampler.set_epoch(ep)
            for b in self.loader:
                loss = nn.functional.mse_loss(self.model(b["cat"], b["num"]), b["y"])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.sched.step()
            if dist.get_rank() == 0:
                print(f"epoch {ep}: {loss.item():.4f}, lr {self.sched.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    Runner(Config()).fit()
    dist.destroy_process_group()
