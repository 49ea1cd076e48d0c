"""ZeRO stage 1: each rank keeps the Adam state of a part of the parameters and broadcasts the updated values."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def build_model(depth=4, width=32):
    layers = [nn.Linear(15, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 5))


def main(use_zero=True):
    dist.init_process_group(backend="gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    ddp_model = DDP(build_model())
    if use_zero:
        optimizer = ZeroRedundancyOptimizer(ddp_model.parameters(), optimizer_class=torch.optim.Adam, lr=2e-3)
    else:
        optimizer = torch.optim.Adam(ddp_model.parameters(), lr=2e-3)
    g = torch.Generator().manual_seed(3)
    x = torch.randn(210, 15, generator=g)
    y = torch.stack([x[:, i::5].sum(1) for i in range(5)], 1).argmax(1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=14, sampler=sampler, drop_last=True)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            loss_fn(ddp_model(xb), yb).backward()
            optimizer.step()
        print(f"epoch {epoch}, rank {rank}, params sum {sum(p.sum() for p in ddp_model.parameters()).item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
