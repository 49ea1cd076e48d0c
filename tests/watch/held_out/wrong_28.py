import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Runner:
    def __init__(self, model, train_set, val_set, lr):
        self.model = nn.parallel.DistributedDataParallel(model)
        self.opt = torch.optim.Adam(self.model.parameters(), lr)
        self.train_sampler = DistributedSampler(train_set)
        self.train_loader = DataLoader(train_set, 10, sampler=self.train_sampler)
        self.val_loader = DataLoader(val_set, 7, sampler=DistributedSampler(val_set, shuffle=False))

    def train_epoch(self, epoch):
        self.train_sampler.set_epoch(epoch)
        self.model.train()
        for x, y in self.train_loader:
            self.opt.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.opt.step()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        correct = torch.tensor(0)
        seen = torch.tensor(0)
        for x, y in self.val_loader:
            pred = self.model(x).argmax(dim=1)
            correct += (pred == y).sum()
            seen += len(y)
        dist.all_reduce(correct)
        dist.all_reduce(seen)
        return 100.0 * correct.item() / seen.item(), seen.item()


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(44)
    x = torch.randn(215, 6, generator=g)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    train, val = TensorDataset(x[:180], y[:180]), TensorDataset(x[180:], y[180:])    # 35 for validation
    torch.manual_seed(0)
    r = Runner(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3)), train, val, 1e-2)
    for epoch in range(3):
        r.train_epoch(epoch)
        acc, n = r.evaluate()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {acc:.2f}% on {n} examples")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
