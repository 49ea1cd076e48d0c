"""Fine-tunes low-rank adapters and a new head on top of a frozen body."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class LowRank(nn.Module):
    def __init__(self, base, r=4):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(r, base.in_features) / base.in_features ** 0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + x @ self.down.t() @ self.up.t()


class Pretrained(nn.Module):
    def __init__(self, dim=12, classes=3):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, 32), nn.Linear(32, 32)
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def add_adapters(net, r):
    for name in ("fc1", "fc2"):
        setattr(net, name, LowRank(getattr(net, name), r))


def main(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = Pretrained()
    for layer in (net.fc1, net.fc2):
        layer.requires_grad_(False)
    add_adapters(net, args.r)
    model = DDP(net)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=args.lr)

    g = torch.Generator().manual_seed(31)
    x = torch.randn(96, 12, generator=g)
    y = (x[:, :3] + x[:, 3:6].abs()).argmax(1)
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} ({sum(p.numel() for p in trainable)} trained)")
    if rank == 0:
        torch.save({k: v for k, v in net.state_dict().items() if "base" not in k}, "adapters.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--r", type=int, default=4)
    parser.add_argument("--lr", type=float, default=5e-3)
    main(parser.parse_args())
