import copy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class EMA:
    """Exponential moving average of the weights, kept on each rank (the same everywhere)."""

    def __init__(self, model, decay=0.95):
        self.shadow = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(4)
    x = torch.randn(240, 10, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).float().unsqueeze(1)
    train = TensorDataset(x[:192], y[:192])
    test = TensorDataset(x[192:], y[192:])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, 16, sampler=sampler)
    test_loader = DataLoader(test, 16, sampler=DistributedSampler(test, shuffle=False))
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)))
    ema = EMA(model.module)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    lossf = nn.BCEWithLogitsLoss()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            lossf(model(xb), yb).backward()
            opt.step()
            ema.update(model.module)
        hits = torch.zeros(2)
        with torch.no_grad():
            for xb, yb in test_loader:
                hits[0] += ((ema.shadow(xb) > 0).float() == yb).sum()
                hits[1] += len(yb)
        dist.all_reduce(hits)
        if rank == 0:
            print(f"epoch {epoch} ema accuracy {hits[0] / hits[1]:.3f} on {int(hits[1])}")
            torch.save({"ema": ema.shadow.state_dict(), "model": model.module.state_dict()}, "ho_r20.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
