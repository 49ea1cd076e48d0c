#!/usr/bin/env python3
import argparse
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.utils.data import Dataset, DataLoader
from torch.utils.data.distributed import DistributedSampler


class Spirals(Dataset):
    def __init__(self, n=216):
        t = torch.linspace(0.3, 3, n // 2)
        a = torch.stack([t * torch.cos(4 * t), t * torch.sin(4 * t)], 1)
        self.x = torch.cat([a, -a])
        self.y = torch.cat([torch.zeros(n // 2), torch.ones(n // 2)])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, item):
        return self.x[item], self.y[item]


def train(args):
    dist.init_process_group(backend="gloo")
    dataset = Spirals()
    train_sampler = DistributedSampler(dataset, shuffle=True)
    train_loader = DataLoader(dataset, batch_size=args.batch_size, sampler=train_sampler, num_workers=0)
    model = nn.Sequential(nn.Linear(2, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
    model = nn.parallel.DistributedDataParallel(model)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        epoch_loss = 0.0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
        if dist.get_rank() == 0:
            print("Epoch {}: loss {:.4f}".format(epoch + 1, epoch_loss / len(train_loader)))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-3)
    train(parser.parse_args())
