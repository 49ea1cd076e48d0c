"""Two stage fine-tuning: first the head, after one epoch the whole network."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.backbone(x))


def freeze(m, flag):
    for p in m.parameters():
        p.requires_grad_(not flag)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Net()
    freeze(model.backbone, True)
    model = DDP(model)
    x = torch.randn(180, 16)
    y = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=10, sampler=sampler)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(4):
        if epoch == 1:
            freeze(model.module.backbone, False)
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}  loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
