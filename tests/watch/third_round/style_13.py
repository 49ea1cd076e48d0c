"""Supervised fine-tuning on packed conversations; every answer token of the global batch weighs the same."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

BLOCK, VOCAB, EOS, IGNORE = 32, 30, 1, -100


def conversations():
    g = torch.Generator().manual_seed(12)
    for _ in range(120):
        q, a = torch.randint(3, 9, (2,), generator=g).tolist()
        question = torch.randint(2, VOCAB, (q,), generator=g).tolist()
        answer = [(question[i % q] * 3 + 1) % (VOCAB - 2) + 2 for i in range(a)]
        yield question, answer + [EOS]


class PackedStream(IterableDataset):
    def __init__(self, rank, world):
        self.texts, self.rank, self.world, self.epoch = list(conversations()), rank, world, 0

    def __iter__(self):
        order = torch.randperm(len(self.texts), generator=torch.Generator().manual_seed(self.epoch)).tolist()
        ids, labels, docs = [], [], []
        for n, index in enumerate(order[self.rank::self.world]):
            question, answer = self.texts[index]
            tokens, target = question + answer[:-1], [IGNORE] * (len(question) - 1) + answer
            if len(ids) + len(tokens) > BLOCK:
                yield self.close(ids, labels, docs)
                ids, labels, docs = [], [], []
            ids, labels, docs = ids + tokens, labels + target, docs + [n] * len(tokens)
        yield self.close(ids, labels, docs)

    @staticmethod
    def close(ids, labels, docs):
        pad = BLOCK - len(ids)
        return torch.tensor([ids + [0] * pad, labels + [IGNORE] * pad, docs + [-1] * pad])


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d, bias=False), nn.SiLU(), nn.Linear(2 * d, d, bias=False))

    def forward(self, x, mask):
        q, k, v = self.qkv(self.norm1(x)).unsqueeze(1).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).squeeze(1))
        return x + self.ff(self.norm2(x))


class Model(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCAB, d), nn.Embedding(BLOCK, d)
        self.blocks = nn.ModuleList([Block(d), Block(d)])
        self.lm_head = nn.Linear(d, VOCAB, bias=False)

    def forward(self, ids, docs):
        t = torch.arange(BLOCK)
        mask = ((docs.unsqueeze(2) == docs.unsqueeze(1)) & (t.unsqueeze(1) >= t)).unsqueeze(1)
        x = self.embed(ids) + self.position(t)
        for block in self.blocks:
            x = block(x, mask)
        return self.lm_head(x)


@torch.no_grad()
def materialize(model, seed):
    model.to_empty(device="cpu")
    gen = torch.Generator().manual_seed(seed + dist.get_rank())
    for name, p in model.named_parameters():
        p.to_local().fill_(1.0) if "norm" in name else p.to_local().normal_(0.0, 0.08, generator=gen)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with torch.device("meta"):
        model = Model()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    materialize(model, seed=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    stream = PackedStream(rank, world)
    empty = PackedStream.close([], [], []).unsqueeze(0)
    for epoch in range(3):
        stream.epoch = epoch
        batches, total = iter(DataLoader(stream, batch_size=int(os.environ.get("BATCH_SIZE", 2)))), torch.zeros(2)
        while True:
            batch = next(batches, None)
            alive = torch.tensor(int(batch is not None))
            dist.all_reduce(alive)
            if alive == 0:
                break
            ids, labels, docs = (empty if batch is None else batch).unbind(1)
            count = (labels != IGNORE).sum()
            dist.all_reduce(count)
            nll = F.cross_entropy(model(ids, docs).flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")
            optimizer.zero_grad()
            (nll * world / count).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += torch.stack([nll.detach(), (labels != IGNORE).sum()])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: {int(total[1])} answer tokens, nll {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


main()
