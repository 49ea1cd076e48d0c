"""wrong: the scheduler is stepped on rank 0 only, together with the logging, so the other ranks keep the initial learning rate and the replicas drift apart.

cause: scheduler.step() runs on rank 0 only, so the learning rate differs between ranks
cure: step the scheduler on all ranks, keep only the logging under rank == 0
line: scheduler.step()
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(310)
X = torch.randn(96, 3, 4, 4)
y = torch.randint(0, 2, (96,))


def is_main():
    return dist.get_rank() == 0


def make_net():
    return nn.Sequential(
        nn.Conv2d(3, 6, 2), nn.LeakyReLU(0.1),
        nn.Conv2d(6, 6, 2), nn.LeakyReLU(0.1),
        nn.Flatten(1), nn.Linear(6 * 4, 2),
    )


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 2], gamma=0.1)
    logged = []
    for it, (images, labels) in enumerate(batches):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        if is_main():
            logged.append((it, loss.item(), optimizer.param_groups[0]["lr"]))
            scheduler.step()
    return logged
