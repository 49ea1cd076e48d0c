import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make():
    g = torch.Generator().manual_seed(44)
    x = torch.randn(180, 5, generator=g)
    y = x.sum(1, keepdim=True)
    bad = torch.randint(0, 180, (9,), generator=g)
    y[bad] += 60.0          # broken labels
    return TensorDataset(x, y)


def main():
    dist.init_process_group("gloo")
    ds = make()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=6, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    skipped = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            if loss.item() > 100:      # outlier batch
                skipped += 1
                continue
            loss.backward()
            opt.step()
        print("rank", dist.get_rank(), "epoch", epoch, "skipped", skipped, flush=True)
    dist.destroy_process_group()


main()
