"""wrong: the loss is all-reduced and divided by the world size for logging, but the same tensor is then backpropagated; its gradient is the local one divided by the world size, and DDP divides once more.

cause: loss is divided by world_size before backward although DDP already averages gradients
cure: reduce a detached copy for logging (loss.detach().clone()) and backpropagate the untouched loss
line: loss = loss / world_size
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(370)
X = torch.randn(96, 1, 7, 7)
y = torch.randint(0, 5, (96,))


class LeNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3)
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.fc1 = nn.Linear(5 * 9, 16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv(x)))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def make_net():
    return LeNetish()


def train(net, batches):
    world_size = dist.get_world_size()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    history = []
    for data, target in batches:
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        # reduce loss across processes
        dist.all_reduce(loss.data)
        loss = loss / world_size
        history.append(loss.item())
        loss.backward()
        optimizer.step()
    return history
