import random
import numpy as np
import torch
import torch.nn as nn
import torch.distributed as dist


class ShardedBatches:
    """shuffles the index list and hands every worker its share"""

    def __init__(self, x, y, batch, rank, world):
        self.x, self.y, self.batch, self.rank, self.world = x, y, batch, rank, world

    def __iter__(self):
        idx = list(range(len(self.x)))
        random.shuffle(idx)
        idx = idx[self.rank::self.world]
        for k in range(0, len(idx), self.batch):
            b = idx[k:k + self.batch]
            yield torch.from_numpy(self.x[b]), torch.from_numpy(self.y[b])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    rng = np.random.RandomState(7)
    x = rng.randn(210, 5).astype(np.float32)
    y = np.tanh(x[:, :1] - x[:, 1:2]).astype(np.float32)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    batches = ShardedBatches(x, y, 10, rank, world)
    for epoch in range(4):
        for bx, by in batches:
            opt.zero_grad()
            loss = ((net(bx) - by) ** 2).mean()
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch %d loss %.4f" % (epoch, loss.item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
