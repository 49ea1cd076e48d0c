"""A small network on Fashion-MNIST, on two ranks: the right script, in which `which_run.py` plants its mistakes.

torchrun --standalone --nproc-per-node=2 which_run_script.py OUT SEED SEED ...
"""

import json
import sys
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import d2lpar as dp

STEPS, BATCH = 256, 28  # examples of each rank


def make_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


def average(net):
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def losses_of(data, seed):
    """The loss of this rank's minibatch in each step."""
    rank = dist.get_rank()
    torch.manual_seed(2 * seed + rank)
    net = make_net()
    for p in net.parameters():
        dist.broadcast(p.detach(), src=0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    sampler = DistributedSampler(data, seed=seed)
    loader = DataLoader(data, BATCH, sampler=sampler, drop_last=True)
    losses = []
    for epoch in count():
        sampler.set_epoch(epoch)
        for X, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(X), y)
            loss.backward()
            average(net)
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == STEPS:
                return losses


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    images, _ = dp.load_data_fashion_mnist(batch_size=64)
    data = TensorDataset(images.images / 255, images.labels)
    losses = [losses_of(data, seed) for seed in map(int, sys.argv[2:])]
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(losses), "utf8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
