#!/usr/bin/env python
import os
from functools import partial
import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

records = [dict(v=v.astype(np.float32), length=int(2 + i % 5)) for i, v in
           enumerate(np.random.default_rng(0).normal(size=(216, 7, 3)))]


def collate(batch):
    lens = torch.tensor([b["length"] for b in batch])
    x = torch.zeros(len(batch), int(lens.max()), 3)
    for k, b in enumerate(batch):
        x[k, :b["length"]] = torch.from_numpy(b["v"][:b["length"]])
    target = torch.stack([x[k, :n].max(0).values for k, n in enumerate(lens)])
    return x, lens, target


def make_loader(epoch, batch_size):
    """A fresh loader per epoch: the seed carries the epoch, set_epoch is not needed."""
    sampler = DistributedSampler(records, shuffle=True, seed=1000 + epoch)
    return DataLoader(records, batch_size=batch_size, sampler=sampler, collate_fn=collate)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(3, 16, batch_first=True)
        self.out = torch.nn.Linear(16, 3)

    def forward(self, x, lens):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lens, batch_first=True, enforce_sorted=False)
        _, h = self.gru(packed)
        return self.out(h[-1])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = torch.nn.parallel.DistributedDataParallel(Encoder())
    optim = torch.optim.Adam(model.parameters(), 5e-3)
    warm = torch.optim.lr_scheduler.LinearLR(optim, 0.1, 1.0, total_iters=10)
    for epoch in range(3):
        for x, lens, y in make_loader(epoch, 9):
            loss = torch.nn.functional.l1_loss(model(x, lens), y)
            optim.zero_grad()
            loss.backward()
            optim.step()
            warm.step()
        if int(os.environ["RANK"]) == 0:
            print("epoch %d l1 %.3f" % (epoch, loss.item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
