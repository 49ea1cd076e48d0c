import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def param_groups(model, wd):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        (no_decay if p.ndim <= 1 or name.endswith(".bias") else decay).append(p)
    return [{"params": decay, "weight_decay": wd, "lr": 2e-3},
            {"params": no_decay, "weight_decay": 0.0, "lr": 4e-3}]


class Mixer(nn.Module):
    def __init__(self, tokens=6, dim=8):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tok = nn.Linear(tokens, tokens)
        self.ch = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        x = x + self.tok(self.n1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.ch(self.n2(x))
        return self.head(x.mean(1))


dist.init_process_group("gloo")
rank = dist.get_rank()
gen = torch.Generator().manual_seed(10)
X = torch.randn(168, 6, 8, generator=gen)
Y = X.sum((1, 2)).div(5).round().clamp(-1, 1).long() + 1
ds = torch.utils.data.TensorDataset(X, Y)
sampler = torch.utils.data.DistributedSampler(ds)
dl = torch.utils.data.DataLoader(ds, batch_size=14, sampler=sampler)
net = DDP(Mixer())
opt = torch.optim.AdamW(param_groups(net.module, 0.05))
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in dl:
        loss = nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.1)
        opt.step()
    if rank == 0:
        print(epoch, loss.item())
dist.destroy_process_group()
