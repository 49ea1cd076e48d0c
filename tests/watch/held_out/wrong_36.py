import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

# chief/worker scheme: the chief updates, the workers receive the new weights


def is_chief():
    return int(os.environ["RANK"]) == 0


def push_weights(model):
    for t in list(model.parameters()) + list(model.buffers()):
        dist.broadcast(t.data, src=0)


class WideDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(8, 1)
        self.deep = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x):
        return (self.wide(x) + self.deep(x)).squeeze(1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = WideDeep()
    push_weights(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    g = torch.Generator().manual_seed(9)
    x = torch.rand(198, 8, generator=g)
    y = torch.log1p(x[:, 0] * 10) + x[:, 1]
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=11, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            if is_chief():
                optimizer.step()
            push_weights(model)
        if is_chief():
            print("epoch", epoch, "mse", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
