import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(8)
    x = torch.randn(168, 5, generator=g)
    y = (x[:, :1] * x[:, 1:2]).sign().clamp(min=0)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=12, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    criterion = nn.BCEWithLogitsLoss()
    optimizer.zero_grad()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch, (xb, yb) in enumerate(loader):
            pred = model(xb)
            loss = criterion(pred, yb)
            loss.backward()
            optimizer.step()
            if rank == 0 and batch % 4 == 0:
                print(f"epoch {epoch} batch {batch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
