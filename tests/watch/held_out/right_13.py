"""Character-level GRU with stateful truncated BPTT. The corpus is cut in W streams, one per worker."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH, BPTT = 4, 15


def corpus():
    base = "the quick brown fox jumps over the lazy dog and runs away. pack my box with five dozen liquor jugs! "
    text = "".join(base[(i * 7 + i // 100 * 3) % len(base)] if i % 11 == 0 else base[i % len(base)] for i in range(3600))
    vocab = sorted(set(text))
    return torch.tensor([vocab.index(c) for c in text]), len(vocab)


class CharGRU(nn.Module):
    def __init__(self, v, d=24):
        super().__init__()
        self.e, self.g, self.o = nn.Embedding(v, d), nn.GRU(d, d), nn.Linear(d, v)

    def forward(self, x, h):
        y, h = self.g(self.e(x), h)
        return self.o(y), h


def batchify(ids, bsz):
    n = ids.numel() // bsz
    return ids[: n * bsz].view(bsz, n).t().contiguous()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    ids, v = corpus()
    part = ids.numel() // world
    stream = batchify(ids[rank * part:(rank + 1) * part], BATCH)
    torch.manual_seed(0)
    model = DDP(CharGRU(v))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        h = torch.zeros(1, BATCH, 24)
        tot, cnt = torch.zeros(1), 0
        for t in range(0, stream.size(0) - 1 - BPTT, BPTT):
            h = h.detach()
            out, h = model(stream[t:t + BPTT], h)
            loss = nn.functional.cross_entropy(out.reshape(-1, v), stream[t + 1:t + 1 + BPTT].reshape(-1))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            opt.step()
            tot += loss.item()
            cnt += 1
        dist.all_reduce(tot)
        if rank == 0:
            print("epoch", epoch, "ppl", torch.exp(tot / cnt / world).item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
