import itertools, random
import torch
from torch import nn
import torch.distributed as dist
from torch.utils.data import IterableDataset, DataLoader, get_worker_info


class ShardedStream(IterableDataset):
    """every record goes to exactly one (rank, worker); order changes with the epoch"""

    def __init__(self, n, rank, world):
        self.n, self.rank, self.world, self.epoch = n, rank, world, 0

    def set_epoch(self, e):
        self.epoch = e

    def record(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(6, generator=g)
        return x, (x * torch.tensor([1., -2., 0., 3., 0., .5])).sum().view(1)

    def __iter__(self):
        info = get_worker_info()
        wid, nw = (info.id, info.num_workers) if info else (0, 1)
        keys = list(range(self.n))
        random.Random(f"shuffle-{self.epoch}").shuffle(keys)
        shard = self.rank * nw + wid
        for i in itertools.islice(keys, shard, None, self.world * nw):
            yield self.record(i)


def cleanup():
    dist.barrier()
    dist.destroy_process_group()


def main(lr=0.03, epochs=3):
    dist.init_process_group("gloo")
    r, w = dist.get_rank(), dist.get_world_size()
    stream = ShardedStream(210, r, w)
    loader = DataLoader(stream, batch_size=10)
    net = nn.parallel.DistributedDataParallel(nn.Linear(6, 1))
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.8)
    for e in range(epochs):
        stream.set_epoch(e)
        losses = []
        for x, y in loader:
            loss = (net(x) - y).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            losses.append(loss.item())
        print(f"rank{r} epoch{e} steps={len(losses)} loss={sum(losses)/len(losses):.4f}")
    cleanup()


if __name__ == "__main__":
    main()
