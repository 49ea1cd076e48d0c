# python train.py --world-size 2     (launches its own workers)
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP


def find_free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def worker(rank, world_size, port, epochs):
    setup(rank, world_size, port)
    torch.manual_seed(42)
    data_x = torch.randn(120, 10)
    data_y = torch.tanh(data_x[:, :5]) * 2
    ddp_model = DDP(ToyModel())
    loss_fn = nn.MSELoss()
    opt = optim.SGD(ddp_model.parameters(), lr=0.05)

    per_rank = len(data_x) // world_size
    for epoch in range(epochs):
        # same permutation everywhere, then everybody takes his own part
        g = torch.Generator()
        g.manual_seed(epoch)
        perm = torch.randperm(len(data_x), generator=g)
        mine = perm[rank * per_rank:(rank + 1) * per_rank]
        for idx in mine.split(10):
            opt.zero_grad()
            out = ddp_model(data_x[idx])
            loss_fn(out, data_y[idx]).backward()
            opt.step()
    with torch.no_grad():
        final = loss_fn(ddp_model.module(data_x), data_y)
    if rank == 0:
        print("final mse", final.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--epochs", type=int, default=3)
    a = p.parse_args()
    mp.spawn(worker, args=(a.world_size, find_free_port(), a.epochs), nprocs=a.world_size, join=True)
