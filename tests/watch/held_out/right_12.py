import os, tempfile, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler, random_split

# ---------------------------------------------------------------- config
cfg = dict(epochs=3, bs=12, lr=0.02, hidden=24)

# ---------------------------------------------------------------- setup
dist.init_process_group("gloo")
R, W = dist.get_rank(), dist.get_world_size()
full = TensorDataset(*(lambda g: (lambda x: (x, torch.sin(x.sum(1, keepdim=True))))(torch.randn(300, 5, generator=g)))(torch.Generator().manual_seed(8)))
train_ds, val_ds = random_split(full, [240, 60], generator=torch.Generator().manual_seed(8))
sampler = DistributedSampler(train_ds, shuffle=True, seed=3)
train_dl = DataLoader(train_ds, cfg["bs"], sampler=sampler, drop_last=True)
val_dl = DataLoader(val_ds, 30)

net = nn.Sequential(nn.Linear(5, cfg["hidden"]), nn.BatchNorm1d(cfg["hidden"]), nn.ReLU(), nn.Linear(cfg["hidden"], 1))
net = DDP(net)
opt = torch.optim.RMSprop(net.parameters(), lr=cfg["lr"])
workdir = tempfile.mkdtemp() if R == 0 else None


def validate(m):
    was = m.training
    m.eval()
    s, n = 0.0, 0
    with torch.no_grad():
        for x, y in val_dl:
            s += ((m(x) - y) ** 2).sum().item()
            n += len(x)
    m.train(was)
    return s / n


best = float("inf")
for epoch in range(cfg["epochs"]):
    sampler.set_epoch(epoch)
    for x, y in train_dl:
        opt.zero_grad()
        nn.functional.smooth_l1_loss(net(x), y).backward()
        opt.step()
    if R == 0:                      # no DDP forward here: the wrapped module only, so nobody waits
        v = validate(net.module)
        if v < best:
            best = v
            torch.save(net.module.state_dict(), os.path.join(workdir, "best.pth"))
        print(f"ep {epoch} val {v:.4f} best {best:.4f}")
    dist.barrier()

if R == 0:
    os.remove(os.path.join(workdir, "best.pth"))
    os.rmdir(workdir)
dist.destroy_process_group()
