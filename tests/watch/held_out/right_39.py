import argparse
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class InfiniteLoader:
    def __init__(self, dataset, batch_size):
        self.sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
        self.loader = DataLoader(dataset, batch_size=batch_size, sampler=self.sampler, drop_last=True)
        self.epoch = 0
        self._restart()

    def _restart(self):
        self.sampler.set_epoch(self.epoch)
        self.it = iter(self.loader)
        self.epoch += 1

    def __next__(self):
        try:
            return next(self.it)
        except StopIteration:
            self._restart()
            return next(self.it)


@torch.no_grad()
def validate(net, x, y, rank, world):
    net.eval()
    part = slice(rank, None, world)
    stat = torch.stack([(net.module(x[part]).argmax(-1) == y[part]).sum().float(), torch.tensor(float(len(y[part])))])
    dist.all_reduce(stat)
    net.train()
    return (stat[0] / stat[1]).item()


def main(args):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(args.seed)
    x = torch.rand(260, 2, generator=g) * 2 - 1
    y = ((x ** 2).sum(1) < 0.6).long()
    data = InfiniteLoader(TensorDataset(x[:198], y[:198]), args.batch)
    torch.manual_seed(args.seed)
    net = nn.Sequential(nn.Linear(2, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2))
    net = DistributedDataParallel(net)
    opt = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    sched = torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=args.steps, power=0.9)
    net.train()
    for step in range(1, args.steps + 1):
        xb, yb = next(data)
        loss = nn.functional.cross_entropy(net(xb), yb)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % args.val_every == 0:
            acc = validate(net, x[198:], y[198:], rank, world)
            if rank == 0:
                print(f"step {step:4d} loss {loss.item():.4f} val acc {acc:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--val-every", type=int, default=10)
    p.add_argument("--batch", type=int, default=11)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
