"""Translation toy: seq2seq GRU. Ported from our old manual code to DDP."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Seq2Seq(nn.Module):
    def __init__(self, v=15, d=20):
        super().__init__()
        self.src, self.tgt = nn.Embedding(v, d), nn.Embedding(v, d)
        self.enc, self.dec = nn.GRU(d, d, batch_first=True), nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, v)

    def forward(self, s, t):
        _, h = self.enc(self.src(s))
        y, _ = self.dec(self.tgt(t), h)
        return self.out(y)


def sync_gradients(model):
    """make sure all the workers have the same gradients before the step"""
    for param in model.parameters():
        if param.requires_grad:
            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    s = torch.randint(1, 15, (156, 6), generator=g)
    t = (s.flip(1) + 1) % 15
    tin = torch.cat([torch.zeros(156, 1, dtype=torch.long), t[:, :-1]], 1)
    ds = TensorDataset(s, tin, t)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=13, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(Seq2Seq())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for src, inp, tgt in loader:
            optimizer.zero_grad()
            logits = model(src, inp)
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), tgt)
            loss.backward()
            sync_gradients(model)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
