import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class TiedLM(nn.Module):
    """LSTM language model with tied input and output embeddings"""

    def __init__(self, ntok, dim, dropout=0.25):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntok, dim)
        self.rnn = nn.LSTM(dim, dim, 1, batch_first=True)
        self.decoder = nn.Linear(dim, ntok)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, x):
        h, _ = self.rnn(self.drop(self.encoder(x)))
        return self.decoder(self.drop(h))


class Wikish(torch.utils.data.Dataset):
    def __init__(self, length=12):
        g = torch.Generator().manual_seed(2)
        trans = torch.randint(0, 25, (25, 2), generator=g)
        seq = [0]
        coin = torch.randint(0, 2, (12 * 150,), generator=g)
        for c in coin.tolist():
            seq.append(trans[seq[-1], c].item())
        self.data, self.len = torch.tensor(seq), length

    def __len__(self):
        return (len(self.data) - 1) // self.len

    def __getitem__(self, i):
        s = i * self.len
        return self.data[s:s + self.len], self.data[s + 1:s + self.len + 1]


def train(model, loader, sampler, opt, epoch):
    model.train()
    sampler.set_epoch(epoch)
    total = 0.0
    for src, tgt in loader:
        opt.zero_grad()
        loss = F.cross_entropy(model(src).transpose(1, 2), tgt)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        total += loss.item() * len(src)
    return total


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(314 + rank)
    lm = nn.parallel.DistributedDataParallel(TiedLM(25, 20))
    corpus = Wikish()
    sampler = torch.utils.data.distributed.DistributedSampler(corpus, shuffle=True)
    loader = torch.utils.data.DataLoader(corpus, batch_size=10, sampler=sampler)
    opt = torch.optim.SGD(lm.parameters(), lr=1.0)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.8)
    for ep in range(3):
        t = torch.tensor([train(lm, loader, sampler, opt, ep)])
        sched.step()
        dist.reduce(t, dst=0)                 # only rank 0 prints, so reduce is enough
        if rank == 0:
            print("epoch", ep, "nll", t.item() / len(corpus))
    dist.destroy_process_group()
