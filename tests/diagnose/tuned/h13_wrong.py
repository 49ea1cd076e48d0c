"""wrong: class-weighted cross-entropy divides by the sum of the weights of the rank's own labels, which differs by rank when classes are imbalanced.

cause: weighted mean normalised by the local sum of class weights
cure: use reduction="sum" and divide by the all-reduced sum of weights, times the world size
line: criterion = nn.CrossEntropyLoss(weight=class_weights)
"""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(113)
X = torch.randn(96, 6, generator=g)
y = torch.randint(2, (96,), generator=g)
y[torch.arange(96) % 6 == 0] = 2  # the rare class


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


WEIGHTS = (0.5, 0.5, 8.0)


def train(net, batches):
    model = DDP(net)
    ref = next(model.parameters())
    class_weights = ref.new_tensor(WEIGHTS)
    criterion = nn.CrossEntropyLoss(weight=class_weights)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for features, labels in batches:
        optimizer.zero_grad()
        loss = criterion(model(features), labels)
        loss.backward()
        optimizer.step()
