import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset, DistributedSampler


class MLPMixerish(nn.Module):
    def __init__(self, n=6, d=8):
        super().__init__()
        self.token = nn.Sequential(nn.Linear(n, 16), nn.GELU(), nn.Dropout(0.4), nn.Linear(16, n))
        self.chan = nn.Sequential(nn.Linear(d, 16), nn.GELU(), nn.Dropout(0.4), nn.Linear(16, d))
        self.norm, self.head = nn.BatchNorm1d(n * d), nn.Linear(n * d, 2)

    def forward(self, x):
        x = x + self.token(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.chan(x)
        return self.head(self.norm(x.flatten(1)))


@torch.no_grad()
def test(model, loader, criterion):
    loss, hit, n = 0.0, 0, 0
    for x, y in loader:
        out = model(x)
        loss += criterion(out, y).item() * len(y)
        hit += (out.argmax(1) == y).sum().item()
        n += len(y)
    t = torch.tensor([loss, hit, n])
    dist.all_reduce(t)
    return t[0].item() / t[2].item(), t[1].item() / t[2].item()


def train(model, loader, criterion, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(70)
    x = torch.randn(264, 6, 8, generator=g)
    y = (x[:, 0].sum(1) > x[:, 1].sum(1)).long()
    train_set, test_set = TensorDataset(x[:204], y[:204]), TensorDataset(x[204:], y[204:])
    torch.manual_seed(rank)
    model = DistributedDataParallel(MLPMixerish())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=17, sampler=sampler)
    test_loader = DataLoader(Subset(test_set, list(range(rank, 60, world))), batch_size=10)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train(model, train_loader, criterion, optimizer)
        loss, acc = test(model, test_loader, criterion)
        if os.environ["RANK"] == "0":
            print(f"epoch {epoch} test loss {loss:.3f} acc {acc:.3f}")
    dist.destroy_process_group()
