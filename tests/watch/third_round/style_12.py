"""DDP with a sharded optimizer state (ZeRO-1), accumulation under no_sync, exact evaluation and one checkpoint."""
import contextlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class TextCNN(nn.Module):
    def __init__(self, vocab=60, dim=20, channels=16, classes=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.convs = nn.ModuleList([nn.Conv1d(dim, channels, k, padding="same") for k in (1, 3)])
        self.fc = nn.Linear(2 * channels, classes)

    def forward(self, ids):
        e = self.emb(ids).transpose(1, 2)
        return self.fc(torch.cat([conv(e).relu().amax(-1) for conv in self.convs], 1))


def reviews():
    g = torch.Generator().manual_seed(14)
    ids = torch.randint(0, 60, (128, 10), generator=g)
    return TensorDataset(ids, (ids % 3).mode(dim=1).values)


def train_epoch(model, loader, opt, accum, loss_fn):
    model.train()
    total = 0.0
    n = len(loader)
    for i, (ids, y) in enumerate(loader):
        boundary = (i + 1) % accum == 0 or i + 1 == n
        window = accum if i < n - n % accum else n % accum
        with contextlib.nullcontext() if boundary else model.no_sync():
            loss = loss_fn(model(ids), y)
            (loss / window).backward()
        total += loss.item()
        if boundary:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
    return total / n


@torch.no_grad()
def evaluate(model, dataset, rank, world):
    model.eval()
    correct = torch.zeros((), dtype=torch.long)
    for ids, y in DataLoader(Subset(dataset, range(rank, len(dataset), world)), batch_size=16):
        correct += (model.module(ids).argmax(1) == y).sum()
    dist.all_reduce(correct)
    return correct.item() / len(dataset)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = reviews()
    train_set, valid_set = Subset(data, range(96)), Subset(data, range(96, 127))
    torch.manual_seed(2)
    model = DistributedDataParallel(TextCNN())
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    opt = ZeroRedundancyOptimizer(matrices, optimizer_class=torch.optim.AdamW, lr=8e-3, weight_decay=0.05)
    opt.add_param_group({"params": vectors, "weight_decay": 0.0})
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)
    sampler = DistributedSampler(train_set, shuffle=True, seed=0)
    loader = DataLoader(train_set, batch_size=int(os.environ.get("BATCH_SIZE", 8)), sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        loss = torch.tensor(train_epoch(model, loader, opt, accum=4, loss_fn=nn.CrossEntropyLoss()))
        sched.step()
        dist.all_reduce(loss)
        acc = evaluate(model, valid_set, rank, world)
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item() / world:.4f} valid accuracy {acc:.4f}")
    opt.consolidate_state_dict(to=0)
    if rank == 0:
        path = os.path.join(tempfile.gettempdir(), "textcnn_zero.pt")
        torch.save({"model": model.module.state_dict(), "optimizer": opt.state_dict(), "scheduler": sched.state_dict()}, path)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
