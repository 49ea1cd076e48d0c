"""GRU for sequence sums with gradient accumulation."""
from contextlib import nullcontext
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Adding(Dataset):
    def __init__(self, n, t=8):
        g = torch.Generator().manual_seed(14)
        v = torch.rand(n, t, 1, generator=g)
        m = torch.zeros(n, t, 1)
        for r in range(n):
            m[r, torch.randperm(t, generator=g)[:2]] = 1
        self.x = torch.cat([v, m], 2)
        self.y = (v * m).sum(1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, k):
        return self.x[k], self.y[k]


class Model(nn.Module):
    def __init__(self, h=16):
        super().__init__()
        self.rnn = nn.GRU(2, h, batch_first=True)
        self.fc = nn.Linear(h, 1)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])


def train(model, loader, opt, accumulate):
    opt.zero_grad()
    for step, (x, y) in enumerate(loader):
        is_accumulating = (step + 1) % accumulate != 0
        # do not communicate while accumulating
        with nullcontext() if is_accumulating else model.no_sync():
            loss = nn.functional.mse_loss(model(x), y)
            (loss / accumulate).backward()
        if not is_accumulating:
            opt.step()
            opt.zero_grad()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    ds = Adding(192)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    model = DDP(Model())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        l = train(model, loader, opt, 4)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} {l:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
