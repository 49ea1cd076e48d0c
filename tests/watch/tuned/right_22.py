"""Fine-tuning: backbone frozen (before DDP), head trained."""
import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 6, 5), nn.BatchNorm1d(6), nn.ReLU(), nn.AdaptiveAvgPool1d(4))

    def forward(self, x):
        return self.body(x).flatten(1)


class Classifier(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.fc = nn.Linear(24, 2)
        for p in self.backbone.parameters():
            p.requires_grad = False

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()      # keep the running statistics as they are
        return self

    def forward(self, x):
        with torch.no_grad():
            f = self.backbone(x)
        return self.fc(f)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Classifier(Backbone())
    x = torch.randn(96, 1, 20)
    y = (x[:, 0, :10].mean(1) > x[:, 0, 10:].mean(1)).long()
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.SGD(trainable, lr=0.1, momentum=0.9)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        model.train()
        tot = 0.0
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
            tot += loss.item()
        if int(os.environ["RANK"]) == 0:
            print(f"[{epoch}] {tot / len(loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
