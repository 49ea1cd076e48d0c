import contextlib
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

GRAD_ACC = 3


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(12)
    x = torch.randn(216, 8)
    y = torch.stack([x[:, :4].sum(1), x[:, 4:].sum(1)], 1).argmax(1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=6, sampler=sampler, drop_last=True)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 20), nn.GELU(), nn.Linear(20, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        optimizer.zero_grad()
        for i, (xb, yb) in enumerate(loader):
            # communicate only when needed
            if i % GRAD_ACC == 0:
                ctx = contextlib.nullcontext()
            else:
                ctx = model.no_sync()
            with ctx:
                loss = loss_fn(model(xb), yb) / GRAD_ACC
                loss.backward()
            if (i + 1) % GRAD_ACC == 0:
                optimizer.step()
                optimizer.zero_grad()
        if dist.get_rank() == 0:
            print("epoch", epoch, loss.item() * GRAD_ACC)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
