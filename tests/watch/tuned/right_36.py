"""Early stopping, the decision is made by rank 0 and broadcast."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class EarlyStopping:
    def __init__(self, patience=2, min_delta=1e-3):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad = float("inf"), 0

    def step(self, value):
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total = torch.zeros(2)
    for x, y in loader:
        total[0] += nn.functional.mse_loss(model(x), y, reduction="sum")
        total[1] += y.numel()
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main(max_epochs=4):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(13)
    x = torch.randn(192, 3, generator=g)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.3 * torch.randn(192, 1, generator=g)
    train, val = TensorDataset(x[:144], y[:144]), TensorDataset(x[144:], y[144:])
    ts, vs = DistributedSampler(train), DistributedSampler(val, shuffle=False)
    tl, vl = DataLoader(train, 12, sampler=ts), DataLoader(val, 8, sampler=vs)
    model = DDP(nn.Linear(3, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    stopper = EarlyStopping()
    flag = torch.zeros(1, dtype=torch.int)
    for epoch in range(max_epochs):
        ts.set_epoch(epoch)
        model.train()
        for xb, yb in tl:
            opt.zero_grad()
            nn.functional.mse_loss(model(xb), yb).backward()
            opt.step()
        v = validate(model, vl)
        if rank == 0:
            print(f"epoch {epoch} val {v:.4f}")
            flag[0] = int(stopper.step(v))
        dist.broadcast(flag, src=0)
        if flag.item():
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
