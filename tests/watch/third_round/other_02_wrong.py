"""Small image classifier. Goes on from snapshot.pt when the current folder has one."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SNAPSHOT = "snapshot.pt"


class Patterns(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(5)
        self.images = torch.randn(n, 1, 8, 8, generator=g)
        self.labels = (self.images[:, 0, :4].mean((1, 2)) > self.images[:, 0, 4:].mean((1, 2))).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.05)
opts = parser.parse_args()

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(1)
cnn = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(96, 2))
model = DDP(cnn)
sgd = torch.optim.SGD(model.parameters(), lr=opts.lr, momentum=0.9)

done = 0
if os.path.exists(SNAPSHOT):
    state = torch.load(SNAPSHOT)
    model.module.load_state_dict(state["model"])
    sgd.load_state_dict(state["sgd"])
    done = state["done"]
dist.barrier()

train_set = Patterns()
sampler = DistributedSampler(train_set, shuffle=True)
loader = DataLoader(train_set, batch_size=8, sampler=sampler, drop_last=True)
for i in range(opts.epochs - done):
    sampler.set_epoch(i)
    correct = 0
    for images, labels in loader:
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        sgd.zero_grad(set_to_none=True)
        loss.backward()
        sgd.step()
        correct += (logits.argmax(1) == labels).sum().item()
    if rank == 0:
        print(f"epoch {done + i}  loss {loss.item():.4f}  correct on this rank {correct}")
        torch.save({"model": cnn.state_dict(), "sgd": sgd.state_dict(), "done": done + i + 1}, SNAPSHOT)
dist.barrier()
dist.destroy_process_group()
