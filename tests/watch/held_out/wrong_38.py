import copy
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class ExponentialMovingAverage:
    def __init__(self, parameters, decay):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self, parameters):
        for s, p in zip(self.shadow, parameters):
            s.lerp_(p, 1.0 - self.decay)

    @torch.no_grad()
    def copy_to(self, parameters):
        for s, p in zip(self.shadow, parameters):
            p.copy_(s)


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        mse = nn.functional.mse_loss(model(x), y).item()
    model.train()
    return mse


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    x = torch.randn(240, 8)
    y = torch.stack([x[:, 0] * x[:, 1], x[:, 2].abs()], 1)
    model = DDP(nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    ema = ExponentialMovingAverage(model.parameters(), decay=0.9)
    ds = TensorDataset(x[:192], y[:192])
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            optimizer.step()
            ema.update(model.parameters())
            step += 1
            if step % 6 == 0 and rank == 0:
                # evaluate with the averaged weights
                ema.copy_to(model.module.parameters())
                print(f"step {step} val mse {evaluate(model.module, x[192:], y[192:]):.4f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
