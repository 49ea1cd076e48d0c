import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class SmallResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(x + self.block(x))
        return self.fc(x.mean((2, 3)))


@torch.no_grad()
def test(model, loader, device):
    model.eval()
    correct = 0
    for x, y in loader:
        correct += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
    model.train()
    return correct / len(loader.dataset)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (128,), generator=g)
    x = torch.randn(128, 3, 6, 6, generator=g) + y.view(-1, 1, 1, 1) * 0.4
    train, valid = TensorDataset(x[:96], y[:96]), TensorDataset(x[96:], y[96:])
    sampler = DistributedSampler(train)
    tl, vl = DataLoader(train, 8, sampler=sampler), DataLoader(valid, 8)
    model = DDP(SmallResNet().to(device), device_ids=[local_rank] if torch.cuda.is_available() else None)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in tl:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, "acc", test(model, vl, device), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
