import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Classifier:
    def __init__(self, epochs=3):
        self.rank = int(os.environ["RANK"])
        self.epochs = epochs
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
        self.ddp_net = DDP(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-3)
        g = torch.Generator().manual_seed(1)
        x = torch.randn(192, 12, generator=g)
        self.dataset = TensorDataset(x, x[:, :4].argmax(1))
        self.sampler = DistributedSampler(self.dataset)
        self.loader = DataLoader(self.dataset, batch_size=16, sampler=self.sampler)

    def step(self, x, y):
        self.net.train()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self):
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            losses = [self.step(x, y) for x, y in self.loader]
            if self.rank == 0:
                print(f"epoch {epoch}: {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Classifier().fit()
    dist.destroy_process_group()
