import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

TOTAL_STEPS = 48


def batches(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for b in loader:
            yield b
        epoch += 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    x = torch.randn(192, 13)
    y = (torch.cos(x[:, 0]) + x[:, 1] * x[:, 2]).unsqueeze(1) + 0.5 * torch.randn(192, 1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    stream = batches(DataLoader(ds, batch_size=8, sampler=sampler), sampler)
    model = DDP(nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = ReduceLROnPlateau(optimizer, mode="min", factor=0.7, patience=2)
    for step in range(TOTAL_STEPS):
        xb, yb = next(stream)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(xb), yb)
        loss.backward()
        optimizer.step()
        # adapt the learning rate to the progress
        scheduler.step(loss.item())
        if step % 12 == 11:
            print(f"rank {rank} step {step + 1} loss {loss.item():.3f} lr {optimizer.param_groups[0]['lr']:.2e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
