"""Character-level classifier with warm-up and cosine decay; takes up run.pt by itself if it is there."""
import argparse
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

TOTAL_EPOCHS = 3


class Tagger(nn.Module):
    def __init__(self, vocab=16, dim=16, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.block = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(dim, classes)

    def forward(self, tokens):
        return self.out(self.block(self.embed(tokens)).mean(1))


def schedule(steps):
    warm = max(1, steps // 10)
    return lambda s: (s + 1) / warm if s < warm else 0.5 * (1 + math.cos(math.pi * (s - warm) / (steps - warm)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--stop-after", type=int, default=TOTAL_EPOCHS)
    stop = parser.parse_args().stop_after
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(4)
    tokens = torch.randint(0, 16, (96, 12), generator=g)
    target = torch.bincount((torch.arange(96)[:, None] * 4 + tokens // 4).flatten(), minlength=384).view(96, 4).argmax(1)
    data = TensorDataset(tokens, target)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)

    torch.manual_seed(6)
    model = DDP(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule(TOTAL_EPOCHS * len(loader)))
    epoch = 0
    if os.path.isfile("run.pt"):
        kept = torch.load("run.pt")
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        scheduler.load_state_dict(kept["scheduler"])
        epoch = kept["epoch"] + 1
    dist.barrier()
    loss_fn = nn.CrossEntropyLoss()
    while epoch < stop:
        sampler.set_epoch(epoch)
        for batch, labels in loader:
            loss = loss_fn(model(batch), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                        "scheduler": scheduler.state_dict(), "epoch": epoch}, "run.pt")
        epoch += 1
    dist.barrier()
    dist.destroy_process_group()
