"""bf16 autocast + norm clipping, transformer encoder classifier."""
import torch
from torch import nn, distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Parity(Dataset):
    """Count of a token in a random sequence, modulo two."""

    def __init__(self, n, length=10, vocab=6, seed=3):
        rng = torch.Generator().manual_seed(seed)
        self.seq = torch.randint(0, vocab, (n, length), generator=rng)
        self.y = (self.seq == 1).sum(1) % 2

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.seq[i], self.y[i]


class Encoder(nn.Module):
    def __init__(self, vocab=6, dim=16, length=10):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.zeros(length, dim))
        layer = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1)
        self.out = nn.Linear(dim, 2)

    def forward(self, s):
        return self.out(self.enc(self.emb(s) + self.pos).mean(1))


def worker():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(42 + rank)
    train = Parity(180)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=15, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(Encoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for seq, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(seq)
            loss = nn.functional.cross_entropy(logits.float(), y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        if rank == 0:
            print(f"{epoch=} {loss.item():.4f} |g|={norm:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    worker()
