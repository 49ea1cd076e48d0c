import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class Worker:
    def __init__(self, seed=4):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.x = torch.randn(180, 6)
        self.y = self.x[:, :3].abs().argmax(1)
        self.gen = torch.Generator().manual_seed(seed)

    def batches(self, bs):
        order = torch.randperm(len(self.x), generator=self.gen)
        shard = order[self.rank::self.world]
        for b in shard.split(bs):
            yield self.x[b], self.y[b]

    def exchange(self):
        grads = [p.grad for p in self.net.parameters()]
        flat = _flatten_dense_tensors(grads)
        dist.reduce(flat, dst=0)
        flat /= self.world
        for g, f in zip(grads, _unflatten_dense_tensors(flat, grads)):
            g.copy_(f)

    def epoch(self, bs=10):
        for x, y in self.batches(bs):
            self.opt.zero_grad()
            loss = nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            self.exchange()
            self.opt.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    w = Worker()
    for e in range(3):
        l = w.epoch()
        print("rank", w.rank, "epoch", e, "loss", l)
    dist.destroy_process_group()
