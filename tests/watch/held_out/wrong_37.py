"""Sequence labelling with padding. The loss is a sum over real tokens; gradients are normalised afterwards
by the number of tokens (fairseq style multiply_grads)."""
import random
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PAD = 0


class Sents(Dataset):
    def __init__(self, n=162):
        r = random.Random(7)
        self.s = [[r.randint(1, 14) for _ in range(r.randint(3, 15))] for _ in range(n)]

    def __len__(self):
        return len(self.s)

    def __getitem__(self, i):
        t = torch.tensor(self.s[i])
        return t, t % 3


def collate(batch):
    x = nn.utils.rnn.pad_sequence([b[0] for b in batch], batch_first=True, padding_value=PAD)
    y = nn.utils.rnn.pad_sequence([b[1] for b in batch], batch_first=True, padding_value=-1)
    return {"x": x, "y": y, "ntokens": int((y >= 0).sum())}


class Labeler(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(15, 12, padding_idx=PAD)
        self.c = nn.Conv1d(12, 24, 3, padding=1)
        self.o = nn.Linear(24, 3)

    def forward(self, x):
        return self.o(torch.relu(self.c(self.e(x).transpose(1, 2))).transpose(1, 2))


class FairTrainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = DDP(Labeler())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def multiply_grads(self, c):
        for p in self.model.parameters():
            p.grad.mul_(c)

    def train_step(self, sample):
        self.opt.zero_grad()
        out = self.model(sample["x"])
        loss = nn.functional.cross_entropy(out.flatten(0, 1), sample["y"].flatten(), ignore_index=-1, reduction="sum")
        loss.backward()
        self.multiply_grads(1.0 / sample["ntokens"])
        nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        self.opt.step()
        return loss.item() / sample["ntokens"]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    ds = Sents()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=9, sampler=sampler, collate_fn=collate)
    tr = FairTrainer()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        losses = [tr.train_step(b) for b in loader]
        if dist.get_rank() == 0:
            print(epoch, sum(losses) / len(losses))
    dist.destroy_process_group()
