"""wrong: the learning rate follows the number of samples seen, but each rank counts only its own shard, so the warm-up runs world-size times slower than on the single device.

cause: sample-based warm-up counts local samples instead of the global number, so the learning rate is too small
cure: count xb.size(0) * dist.get_world_size() samples per step
line: seen += xb.size(0)
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(260)
X = torch.randn(96, 11)
y = torch.randint(0, 6, (96,))


@dataclass
class Cfg:
    lr: float = 0.2
    warmup_samples: int = 200
    decay_samples: int = 1000


def make_net():
    return nn.Sequential(nn.Linear(11, 22), nn.Hardtanh(), nn.Linear(22, 6))


def lr_at(samples, cfg):
    if samples < cfg.warmup_samples:
        return cfg.lr * samples / cfg.warmup_samples
    return cfg.lr * max(0.0, 1 - (samples - cfg.warmup_samples) / cfg.decay_samples)


def train(net, batches):
    cfg = Cfg()
    ddp = DDP(net)
    opt = torch.optim.SGD(ddp.parameters(), lr=cfg.lr)
    seen = 0
    for xb, yb in batches:
        seen += xb.size(0)
        for group in opt.param_groups:
            group["lr"] = lr_at(seen, cfg)
        opt.zero_grad()
        loss = nn.functional.cross_entropy(ddp(xb), yb)
        loss.backward()
        opt.step()
