"""Transfer learning: replace the last layer for the new number of classes."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Encoder(nn.Module):
    def __init__(self, n_classes=10):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 14), nn.ReLU())
        self.fc = nn.Linear(14, n_classes)

    def forward(self, x):
        return self.fc(self.features(x))


class Experiment:
    def __init__(self, lr=0.02, n_classes=3):
        self.rank = dist.get_rank()
        self.model = Encoder()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.model.fc = nn.Linear(14, n_classes)
        self.model = DistributedDataParallel(self.model)
        self.criterion = nn.CrossEntropyLoss()

    def data(self):
        g = torch.Generator().manual_seed(15)
        x = torch.randn(150, 14, generator=g)
        y = x.view(-1, 7, 2)[:, :3].sum(2).argmax(1)
        return TensorDataset(x, y)

    def fit(self, epochs=3):
        ds = self.data()
        sampler = DistributedSampler(ds)
        loader = DataLoader(ds, 10, sampler=sampler, drop_last=True)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for x, y in loader:
                self.model.zero_grad()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
            if self.rank == 0:
                print("epoch", epoch, "loss", round(loss.item(), 4))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Experiment().fit()
    dist.destroy_process_group()
