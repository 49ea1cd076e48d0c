"""Instruction tuning in miniature: only the answer tokens count (labels -100 elsewhere). Answers are of very
different lengths, and the loss is the mean over the answer tokens of the batch."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

V, L = 24, 20


class Dialogs(Dataset):
    def __init__(self, n=144):
        self.rows = []
        for i in range(n):
            g = torch.Generator().manual_seed(i)
            n_ans = [1, 2, 18][int(torch.randint(0, 3, (1,), generator=g))]
            ids = (torch.randint(0, V, (1,), generator=g) + torch.arange(L) * 5) % V
            lab = ids.clone()
            lab[: L - n_ans] = -100
            self.rows.append((ids, lab))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Causal(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.emb, self.rnn, self.head = nn.Embedding(V, d), nn.GRU(d, d, batch_first=True), nn.Linear(d, V)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Causal())
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    ds = Dialogs()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=4, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for ids, lab in loader:
            logits = model(ids)[:, :-1]
            loss = F.cross_entropy(logits.flatten(0, 1), lab[:, 1:].flatten(), ignore_index=-100)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
