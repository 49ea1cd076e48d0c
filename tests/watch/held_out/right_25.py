# fine-tuning: frozen backbone in eval mode (its BN statistics must not move), new head trained
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def pretrained_backbone():
    torch.manual_seed(1000)               # stands for loading weights from the hub
    net = nn.Sequential(nn.Linear(14, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())
    net.train()
    with torch.no_grad():
        for _ in range(10):
            net(torch.randn(64, 14))
    return net


class FineTuner(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.backbone = pretrained_backbone()
        for p in self.backbone.parameters():
            p.requires_grad = False
        self.head = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, n_classes))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            z = self.backbone(x)
        return self.head(z)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(0)
    x = torch.randn(240, 14, generator=g)
    y = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    tr, va = TensorDataset(x[:180], y[:180]), (x[180:], y[180:])
    model = FineTuner(4)
    torch.manual_seed(rank)
    model = DDP(model)
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2)
    sampler = DistributedSampler(tr)
    loader = DataLoader(tr, batch_size=15, sampler=sampler)
    for epoch in range(3):
        model.train()
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():             # every rank evaluates everything: same number everywhere
            acc = (model.module(va[0]).argmax(1) == va[1]).float().mean()
        if rank == 0:
            print("val acc", acc.item())
    dist.destroy_process_group()


main()
