"""wrong: the forward goes through the original net instead of the DDP wrapper, so the reducer is never armed and gradients stay local.

cause: the forward bypasses the DDP wrapper (calls net, not the wrapped model)
cure: call the wrapped model in the forward: ddp_model(inputs)
line: outputs = net(inputs)
"""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(109)
X = torch.randn(96, 6, generator=g)
y = torch.randint(3, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))


def train(net, batches):
    ddp_model = DDP(net)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.1, momentum=0.9)

    ddp_model.train()
    for inputs, labels in batches:
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
