import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class AutoEncoder(nn.Module):
    def __init__(self, d=15, k=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(d, 10), nn.ReLU(), nn.Linear(10, k))
        self.decoder = nn.Sequential(nn.Linear(k, 10), nn.ReLU(), nn.Linear(10, d))

    def encode(self, x):
        return self.encoder(x)

    def decode(self, z):
        return self.decoder(z)

    def forward(self, x):
        return self.decode(self.encode(x))


def train_step(model, x, opt):
    # DDP has no attribute 'encode', hence .module
    z = model.module.encode(x)
    rec = model.module.decode(z)
    loss = nn.functional.mse_loss(rec, x) + 1e-3 * z.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.detach()


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(2)
    X = torch.randn(160, 3, generator=g) @ torch.randn(3, 15, generator=g)
    ds = TensorDataset(X)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 10, sampler=sampler)
    model = DDP(AutoEncoder())
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        tot = sum(train_step(model, x, opt) for (x,) in loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {tot / len(loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
