import os, math
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint
from torch.nn.parallel import DistributedDataParallel as DDP

# copy task for a deeper encoder with activation checkpointing


class Block(nn.Module):
    def __init__(self, d, heads=2):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.att = nn.MultiheadAttention(d, heads, dropout=0.1, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * d, d))

    def forward(self, x):
        y = self.n1(x)
        x = x + self.att(y, y, y, need_weights=False)[0]
        return x + self.ff(self.n2(x))


class Encoder(nn.Module):
    def __init__(self, vocab=12, d=24, depth=3, max_len=10):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        pos = torch.arange(max_len)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(100.0) / d))
        self.register_buffer("pos", torch.cat([pos.sin(), pos.cos()], 1), persistent=False)
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.head = nn.Linear(d, vocab)

    def forward(self, ids):
        h = self.tok(ids) + self.pos
        for blk in self.blocks:
            h = checkpoint(blk, h, use_reentrant=False) if self.training else blk(h)
        return self.head(h)


class Reverse(torch.utils.data.Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, 12, (n, 10), generator=torch.Generator().manual_seed(4))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.ids[i].flip(0)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(90 + rank)
    model = DDP(Encoder(), static_graph=False)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    lam = lambda s: min(1.0, (s + 1) / 8)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lam)
    ds = Reverse(168)
    sampler = torch.utils.data.DistributedSampler(ds)
    loader = torch.utils.data.DataLoader(ds, 14, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for src, tgt in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(src).flatten(0, 1), tgt.flatten())
            loss.backward()
            total = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss:.3f} gnorm {total:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
