"""Multi-task with learned uncertainty weights (Kendall et al.); the log variances live inside the wrapped module."""
import torch
import torch.distributed as dist
from torch import nn, Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rooms(Dataset):
    def __init__(self, n: int):
        g = torch.Generator().manual_seed(17)
        self.x = torch.randn(n, 8, generator=g)
        self.price = 3 * self.x[:, 0] - self.x[:, 1] ** 2
        self.kind = self.x[:, 2:5].argmax(1)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i):
        return dict(x=self.x[i], price=self.price[i], kind=self.kind[i])


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
        self.reg, self.cls = nn.Linear(24, 1), nn.Linear(24, 3)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, batch) -> Tensor:
        h = self.trunk(batch["x"])
        l1 = nn.functional.mse_loss(self.reg(h).squeeze(1), batch["price"])
        l2 = nn.functional.cross_entropy(self.cls(h), batch["kind"])
        w = torch.exp(-self.log_var)
        return w[0] * l1 + w[1] * l2 + 0.5 * self.log_var.sum()


def main() -> None:
    dist.init_process_group("gloo")
    ds = Rooms(180)
    sampler = DistributedSampler(ds, drop_last=True)
    loader = DataLoader(ds, batch_size=9, sampler=sampler, drop_last=True)
    model = nn.parallel.DistributedDataParallel(MultiTask())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in loader:
            opt.zero_grad()
            loss = model(batch)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, round(loss.item(), 4), model.module.log_var.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
