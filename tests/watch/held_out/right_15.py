"""Masked-LM pretraining. The number of masked tokens differs per rank, so the loss is a sum
divided by the GLOBAL count; DDP will divide by world size, hence the factor."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, DistributedSampler

V, T, MASK, IGN = 40, 14, 39, -100


class Sentences(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(12)
        start = torch.randint(0, 38, (168, 1), generator=g)
        self.ids = (start + torch.arange(T) * 3) % 38

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i]


def mask_tokens(ids, gen):
    m = torch.rand(ids.shape, generator=gen) < 0.2
    m[:, 0] |= ~m.any(1)
    labels = torch.where(m, ids, torch.full_like(ids, IGN))
    return torch.where(m, torch.full_like(ids, MASK), ids), labels


class TinyBert(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Parameter(torch.zeros(T, d))
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.lm = nn.Linear(d, V)

    def forward(self, x):
        return self.lm(self.enc(self.tok(x) + self.pos))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    gen = torch.Generator().manual_seed(500 + rank)
    model = DDP(TinyBert())
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ds = Sentences()
    sampler = DistributedSampler(ds)
    dl = DataLoader(ds, batch_size=7, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for ids in dl:
            x, y = mask_tokens(ids, gen)
            n = (y != IGN).sum().float()
            dist.all_reduce(n)
            loss_sum = F.cross_entropy(model(x).view(-1, V), y.view(-1), ignore_index=IGN, reduction="sum")
            loss = loss_sum * world / n
            opt.zero_grad()
            loss.backward()
            opt.step()
        log = (loss_sum / n).detach()
        dist.all_reduce(log)
        if rank == 0:
            print("mlm loss", log.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
