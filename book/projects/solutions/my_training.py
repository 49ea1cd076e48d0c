"""My network, trained from scratch on k devices: python my_training.py"""

import copy

import torch
from torch import nn
from torch.nn import functional as F

import d2lpar as dp
from d2lpar import allreduce, split_batch, try_devices


def make_net():
    """A new network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, stride=2, padding=1),
        nn.GroupNorm(4, 16), nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.GroupNorm(4, 32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )


def load_data():
    """All examples X and their labels y, in two tensors."""
    images, _ = dp.load_data_fashion_mnist(batch_size=64)
    return images.images / 255, images.labels


def loss(scores, y):
    """One number for each example."""
    return F.cross_entropy(scores, y, reduction="none")


def make_optimizer(params):
    """The optimizer of one replica."""
    return torch.optim.SGD(params, lr=0.02, momentum=0.9)


def train(num_devices, net, minibatches, num_epochs=1):
    """Train copies of `net` on `num_devices` devices; return the copies."""
    devices = try_devices(num_devices)
    replicas = [copy.deepcopy(net).to(device) for device in devices]
    optimizers = [make_optimizer(replica.parameters()) for replica in replicas]
    for _ in range(num_epochs):
        for X, y in minibatches:
            X_shards, y_shards = split_batch(X, y, devices)
            ranks = zip(X_shards, y_shards, replicas, optimizers)
            for A, b, replica, optimizer in ranks:
                optimizer.zero_grad()
                loss(replica(A), b).sum().backward()
            for copies in zip(*[replica.parameters() for replica in replicas]):
                allreduce([p.grad for p in copies])
                for p in copies:
                    p.grad /= len(X)
            for optimizer in optimizers:
                optimizer.step()
    return replicas


if __name__ == "__main__":
    X, y = load_data()
    test = X[-512:], y[-512:]
    order = torch.randperm(len(X) - 512, generator=torch.Generator().manual_seed(0))
    minibatches = [(X[chosen], y[chosen]) for chosen in order.split(50)]
    for k in (1, 2, 3):
        torch.manual_seed(0)
        replicas = train(k, make_net(), minibatches, num_epochs=2)
        right = dp.count_right(replicas[0].cpu(), *test)
        print(f"{k} device{'s' * (k > 1)}: {right} of 512 test images right")
