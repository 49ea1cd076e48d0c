import torch
from torch import nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(8, 40)
        self.bn = nn.BatchNorm1d(40)
        self.dp = nn.Dropout(0.4)
        self.l2 = nn.Linear(40, 2)
    def forward(self, x):
        return self.l2(self.dp(torch.relu(self.bn(self.l1(x)))))

def evaluate(model, loader):
    hits = torch.zeros(2)
    with torch.no_grad():
        for x, y in loader:
            hits[0] += (model(x).argmax(1) == y).sum()
            hits[1] += y.numel()
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    g = torch.Generator().manual_seed(2)
    x = torch.randn(240, 8, generator=g)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()
    train, val = TensorDataset(x[:192], y[:192]), TensorDataset(x[192:], y[192:])
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, 16, sampler=sampler)
    val_loader = DataLoader(val, 8, sampler=DistributedSampler(val, shuffle=False))
    model = DDP(Net())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in train_loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(xb), yb).backward()
            opt.step()
        acc = evaluate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: val accuracy {acc:.3f}")
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
