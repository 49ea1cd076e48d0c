# global batch 24; losses are computed per example and divided by the global batch size (TF habit)
import os
import torch
from torch import nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

GLOBAL_BATCH = 24


class Digits(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(10)
        proto = torch.randn(5, 25, generator=g)
        self.y = torch.randint(0, 5, (240,), generator=g)
        self.x = proto[self.y] + torch.randn(240, 25, generator=g)

    def __len__(self):
        return 240

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def compute_loss(logits, labels):
    per_example = nn.functional.cross_entropy(logits, labels, reduction="none")
    return per_example.sum() / GLOBAL_BATCH


def main():
    dist.init_process_group("gloo")
    world = int(os.environ["WORLD_SIZE"])
    ds = Digits()
    sampler = DistributedSampler(ds, shuffle=True)
    loader = DataLoader(ds, batch_size=GLOBAL_BATCH // world, sampler=sampler, drop_last=True)
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(25, 30), nn.ReLU(), nn.Linear(30, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for x, y in loader:
            loss = compute_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", total.item() / len(loader))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
