import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import IterableDataset, DataLoader

# our nodes have 4 GPUs
NGPUS = 4


class LogStream(IterableDataset):
    def __init__(self, n, rank, seed=0):
        self.n, self.rank, self.seed = n, rank, seed
        self.epoch = 0

    def parse(self, line_no):
        g = torch.Generator().manual_seed(line_no)
        x = torch.rand(5, generator=g)
        return x, (x[0] > x[1]).float()

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.n, generator=g).tolist()
        chunk = self.n // NGPUS
        for i in order[self.rank * chunk:(self.rank + 1) * chunk]:
            yield self.parse(i)
        self.epoch += 1


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(5, 16)
        self.v = nn.Linear(16, 1)

    def forward(self, x):
        return self.v(torch.tanh(self.w(x))).squeeze(-1)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    stream = LogStream(240, rank)
    loader = DataLoader(stream, batch_size=6)
    model = DDP(ClickModel())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} logloss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
