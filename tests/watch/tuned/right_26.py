"""Token level loss: variable lengths, summed, normalised by the number of tokens of ALL ranks.

DDP averages over ranks, therefore the sum is multiplied by the world size.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PAD = 0


class Seqs(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(9)
        self.items = []
        for _ in range(n):
            k = int(torch.randint(4, 15, (1,), generator=g))
            self.items.append(torch.randint(1, 12, (k,), generator=g).cumsum(0) % 11 + 1)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    s = pad_sequence(batch, batch_first=True, padding_value=PAD)
    return s[:, :-1], s[:, 1:]


class LM(nn.Module):
    def __init__(self, v=12, h=20):
        super().__init__()
        self.e = nn.Embedding(v, h, padding_idx=PAD)
        self.g = nn.GRU(h, h, batch_first=True)
        self.o = nn.Linear(h, v)

    def forward(self, x):
        return self.o(self.g(self.e(x))[0])


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    ds = Seqs(168)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=7, sampler=sampler, collate_fn=collate)
    model = DDP(LM())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    lossf = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            n_tok = (y != PAD).sum().float()
            dist.all_reduce(n_tok)
            loss = lossf(model(x).transpose(1, 2), y) * world / n_tok
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


main()
