"""wrong: the list for all_gather is made by multiplying a one-element list, so all slots are the same tensor; after the gather it holds the gradient of the last rank only, and the mean over slots is that gradient.

cause: all slots of the gather list alias one tensor, so only the last rank's gradient is used
cure: build the list with a comprehension: [torch.zeros_like(g) for _ in range(world)]
line: slots = [torch.zeros_like(g)] * world
"""
import torch
import torch.distributed as dist
import torch.nn as nn

torch.manual_seed(360)
X = torch.randn(96, 5)
y = (X[:, :1] > 0).to(X.dtype)


def make_net():
    return nn.Sequential(nn.Linear(5, 12), nn.Sigmoid(), nn.Linear(12, 1))


def broadcast_model(net):
    for name, tensor in net.state_dict().items():
        dist.broadcast(tensor, src=0)


def gather_average(net):
    world = dist.get_world_size()
    for param in net.parameters():
        g = param.grad.contiguous()
        slots = [torch.zeros_like(g)] * world
        dist.all_gather(slots, g)
        param.grad = torch.stack(slots).mean(0)


def train(net, batches):
    broadcast_model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    bce = nn.BCEWithLogitsLoss()
    for inputs, targets in batches:
        optimizer.zero_grad()
        bce(net(inputs), targets).backward()
        gather_average(net)
        optimizer.step()
