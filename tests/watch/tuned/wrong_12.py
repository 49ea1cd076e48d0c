#!/usr/bin/env python
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.multiprocessing import Process
import torch.multiprocessing as mp


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(16, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def sync_gradients(model):
    """ Gradient averaging. """
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)


def run(rank, size):
    torch.manual_seed(1234)
    x = torch.randn(192, 16)
    y = x[:, :4].argmax(1)
    order = torch.randperm(192)
    part = order[rank * (192 // size):(rank + 1) * (192 // size)]
    ds = torch.utils.data.TensorDataset(x[part], y[part])
    train_set = torch.utils.data.DataLoader(ds, batch_size=24 // size, shuffle=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(3):
        epoch_loss = 0.0
        for data, target in train_set:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            epoch_loss += loss.item()
            loss.backward()
            sync_gradients(model)
            optimizer.step()
        print('Rank', dist.get_rank(), 'epoch', epoch, ':', epoch_loss / len(train_set))


def init_processes(rank, size, fn, backend='gloo'):
    os.environ['MASTER_ADDR'] = '127.0.0.1'
    os.environ['MASTER_PORT'] = '29533'
    dist.init_process_group(backend, rank=rank, world_size=size)
    fn(rank, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    size = 2
    mp.set_start_method("spawn")
    processes = []
    for rank in range(size):
        p = Process(target=init_processes, args=(rank, size, run))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
