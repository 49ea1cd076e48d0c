import torch, os
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler
from torch.optim.lr_scheduler import ReduceLROnPlateau

def reduce_mean(t):
    t = t.clone()
    dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return t / dist.get_world_size()

def epoch_pass(model, loader, opt=None):
    model.train(opt is not None)
    tot = torch.zeros(())
    with torch.set_grad_enabled(opt is not None):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            tot += loss.detach()
    return reduce_mean(tot / len(loader))

def main():
    dist.init_process_group('gloo')
    g = torch.Generator().manual_seed(123)
    X = torch.randn(240, 2, generator=g)
    Y = torch.sin(X[:, :1]) * X[:, 1:]
    full = TensorDataset(X, Y)
    train, val = random_split(full, [192, 48], generator=torch.Generator().manual_seed(42))
    ts, vs = DistributedSampler(train), DistributedSampler(val, shuffle=False)
    tl, vl = DataLoader(train, 16, sampler=ts), DataLoader(val, 16, sampler=vs)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    sched = ReduceLROnPlateau(opt, factor=0.5, patience=0)
    for epoch in range(4):
        ts.set_epoch(epoch)
        tr = epoch_pass(model, tl, opt)
        va = epoch_pass(model, vl)
        sched.step(va)           # the same number on each rank
        if dist.get_rank() == 0:
            print(f'{epoch} train {tr:.4f} val {va:.4f} lr {opt.param_groups[0]["lr"]:g}')
    dist.destroy_process_group()

if __name__ == '__main__':
    main()
