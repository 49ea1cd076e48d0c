import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from math import ceil
from random import Random


class Partition(object):
    def __init__(self, data, index):
        self.data = data
        self.index = index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, index):
        return self.data[self.index[index]]


class DataPartitioner(object):
    def __init__(self, data, sizes, seed=1234):
        self.data = data
        self.partitions = []
        rng = Random()
        rng.seed(seed)
        indexes = list(range(len(data)))
        rng.shuffle(indexes)
        for frac in sizes:
            part_len = int(frac * len(data))
            self.partitions.append(indexes[0:part_len])
            indexes = indexes[part_len:]

    def use(self, partition):
        return Partition(self.data, self.partitions[partition])


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=3)
        self.conv2 = nn.Conv2d(4, 8, kernel_size=3)
        self.fc1 = nn.Linear(32, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(self.conv2(x))
        x = x.view(-1, 32)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def partition_dataset(size):
    g = torch.Generator().manual_seed(33)
    y = torch.randint(0, 4, (240,), generator=g)
    x = torch.randn(240, 1, 10, 10, generator=g) + y.view(-1, 1, 1, 1).float() / 2
    data = torch.utils.data.TensorDataset(x, y)
    bsz = 24 // size
    part = DataPartitioner(data, [1.0 / size for _ in range(size)]).use(dist.get_rank())
    return torch.utils.data.DataLoader(part, batch_size=bsz, shuffle=True), bsz


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def run(rank, size):
    torch.manual_seed(1234)
    train_set, bsz = partition_dataset(size)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(3):
        epoch_loss = 0.0
        for data, target in train_set:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        print('Rank ', rank, ', epoch ', epoch, ': ', epoch_loss / ceil(len(train_set.dataset) / bsz))


if __name__ == "__main__":
    dist.init_process_group('gloo')
    run(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
