'''char level LSTM with DDP'''
import argparse, torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import Dataset, DataLoader
from torch.utils.data.distributed import DistributedSampler

TEXT = ("it was the best of times, it was the worst of times, it was the age of wisdom, "
        "it was the age of foolishness, it was the epoch of belief, it was the epoch of incredulity, ") * 6

class CharData(Dataset):
    def __init__(self, text, block):
        self.vocab = sorted(set(text))
        stoi = {c: i for i, c in enumerate(self.vocab)}
        ids = torch.tensor([stoi[c] for c in text])
        n = (len(ids) - 1) // block
        self.x = ids[:n * block].view(n, block)
        self.y = ids[1:n * block + 1].view(n, block)
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return self.x[i], self.y[i]

class CharLSTM(nn.Module):
    def __init__(self, v, h):
        super().__init__()
        self.embed = nn.Embedding(v, h)
        self.lstm = nn.LSTM(h, h, batch_first=True)
        self.proj = nn.Linear(h, v)
    def forward(self, x, state=None):
        out, state = self.lstm(self.embed(x), state)
        return self.proj(out), state

ap = argparse.ArgumentParser()
ap.add_argument('--hidden', type=int, default=24)
ap.add_argument('--bs', type=int, default=4)
ap.add_argument('--clip', type=float, default=0.25)
ap.add_argument('--epochs', type=int, default=3)
opt = ap.parse_args()

dist.init_process_group('gloo')
rank = dist.get_rank()
data = CharData(TEXT, 12)
sampler = DistributedSampler(data, drop_last=True)
loader = DataLoader(data, opt.bs, sampler=sampler, drop_last=True)
model = nn.parallel.DistributedDataParallel(CharLSTM(len(data.vocab), opt.hidden))
optim = torch.optim.RMSprop(model.parameters(), lr=0.003)
for e in range(opt.epochs):
    sampler.set_epoch(e)
    tot, cnt = torch.zeros(1), torch.zeros(1)
    for x, y in loader:
        logits, _ = model(x)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), opt.clip)
        optim.step()
        tot += loss.detach() * y.numel(); cnt += y.numel()
    dist.all_reduce(tot); dist.all_reduce(cnt)
    if rank == 0: print('perplexity', (tot / cnt).exp().item())
dist.destroy_process_group()
