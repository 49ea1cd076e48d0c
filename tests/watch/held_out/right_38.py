"""Bucketing batch sampler: sequences of similar length are put in one batch; the list of batches is made
the same on all ranks, cut to a multiple of the world size, and dealt out."""
import random
import torch
from torch import nn
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, Sampler


class Words(Dataset):
    def __init__(self, n=240):
        r = random.Random(1)
        self.seqs = [[r.randrange(1, 10) for _ in range(r.randrange(3, 20))] for _ in range(n)]
        self.labels = [sum(1 for t in s if t > 5) / len(s) for s in self.seqs]

    def __len__(self):
        return len(self.seqs)

    def __getitem__(self, i):
        return torch.tensor(self.seqs[i]), self.labels[i]


class DistributedBucketSampler(Sampler):
    def __init__(self, lengths, batch_size, rank, world, seed=0):
        self.lengths, self.bs, self.rank, self.world, self.seed = lengths, batch_size, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def _batches(self):
        r = random.Random(self.seed * 1000 + self.epoch)
        idx = list(range(len(self.lengths)))
        r.shuffle(idx)
        idx.sort(key=lambda i: self.lengths[i] // 4)          # stable: random within a bucket
        batches = [idx[i:i + self.bs] for i in range(0, len(idx) - self.bs + 1, self.bs)]
        r.shuffle(batches)
        return batches[: len(batches) // self.world * self.world]

    def __iter__(self):
        return iter(self._batches()[self.rank::self.world])

    def __len__(self):
        return len(self.lengths) // self.bs // self.world


def pad(batch):
    xs, ys = zip(*batch)
    return nn.utils.rnn.pad_sequence(xs, batch_first=True), torch.tensor(ys).unsqueeze(1)


class MeanPool(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 12, padding_idx=0)
        self.mlp = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, x):
        m = (x > 0).unsqueeze(-1)
        return self.mlp((self.emb(x) * m).sum(1) / m.sum(1))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    ds = Words()
    bsampler = DistributedBucketSampler([len(s) for s in ds.seqs], 8, rank, world)
    loader = DataLoader(ds, batch_sampler=bsampler, collate_fn=pad)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(MeanPool())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(4):
        bsampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            opt.step()
        if rank == 0:
            print(epoch, len(bsampler), loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
