import random
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    """Endless-looking stream cut into equal shards: (rank, worker) -> its own lines."""

    def __init__(self, n, rank, world, buffer=16):
        self.n, self.rank, self.world, self.buffer = n, rank, world, buffer
        self.epoch = 0

    def set_epoch(self, e):
        self.epoch = e

    def _lines(self):
        for i in range(self.n):
            t = i * 0.05
            yield torch.tensor([t % 1.0, (t * 3) % 1.0, float(i % 7) / 7]), torch.tensor([float(i % 2)])

    def __iter__(self):
        info = get_worker_info()
        wid, nw = (info.id, info.num_workers) if info else (0, 1)
        me, total = self.rank * nw + wid, self.world * nw
        usable = self.n - self.n % total          # the same count everywhere
        rng = random.Random(1000 * self.epoch + me)
        buf = []
        for i, item in enumerate(self._lines()):
            if i >= usable:
                break
            if i % total != me:
                continue
            buf.append(item)
            if len(buf) == self.buffer:
                rng.shuffle(buf)
                yield from buf
                buf = []
        rng.shuffle(buf)
        yield from buf


dist.init_process_group("gloo")
stream = Stream(250, dist.get_rank(), dist.get_world_size())
loader = DataLoader(stream, batch_size=10, drop_last=True)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1)))
opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
for epoch in range(3):
    stream.set_epoch(epoch)
    losses = []
    for x, y in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    if dist.get_rank() == 0:
        print(epoch, sum(losses) / len(losses))
dist.destroy_process_group()
