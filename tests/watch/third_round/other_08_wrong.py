"""Signals with random shifts and noise, made in the loader's workers."""

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SEED = 1234


class Signals(Dataset):
    def __init__(self, count=96, length=32):
        rs = np.random.RandomState(SEED)
        self.kind = rs.randint(0, 3, count)
        grid = np.linspace(0, 2 * np.pi, length, endpoint=False)
        self.clean = np.stack([np.sin((k + 1) * grid) for k in self.kind]).astype(np.float32)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, index):
        signal = np.roll(self.clean[index], np.random.randint(0, 8))
        signal = signal * np.random.uniform(0.7, 1.3) + np.random.normal(0, 0.4, signal.shape)
        return torch.from_numpy(signal.astype(np.float32))[None], int(self.kind[index])


def seed_worker(worker_id):
    np.random.seed(torch.initial_seed() % 2 ** 32)


def build(rank):
    signals = Signals()
    sampler = DistributedSampler(signals, shuffle=True, seed=SEED)
    generator = torch.Generator()
    generator.manual_seed(SEED)
    loader = DataLoader(signals, batch_size=12, sampler=sampler, num_workers=2,
                        worker_init_fn=seed_worker, generator=generator)
    return loader, sampler


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(SEED)
    loader, sampler = build(rank)
    net = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.ReLU(), nn.AvgPool1d(4), nn.Flatten(), nn.Linear(64, 3))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for signal, kind in loader:
            logits = model(signal)
            loss = F.cross_entropy(logits, kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([(logits.argmax(1) == kind).sum().item(), len(kind)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} accuracy {total[0] / total[1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
