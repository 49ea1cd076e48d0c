"""Autoencoder for short signals, built on meta and materialised after sharding."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SEED = 21


class Dense(nn.Module):
    def __init__(self, fan_in, fan_out, act=True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_out, fan_in))
        self.bias = nn.Parameter(torch.empty(fan_out))
        self.act = act

    def forward(self, x):
        x = nn.functional.linear(x, self.weight, self.bias)
        return torch.tanh(x) if self.act else x

    @torch.no_grad()
    def init_weights(self):
        bound = (3.0 / self.weight.shape[1]) ** 0.5
        self.weight.to_local().uniform_(-bound, bound)
        self.bias.to_local().zero_()


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(Dense(32, 24), Dense(24, 4, act=False))
        self.decoder = nn.Sequential(Dense(4, 24), Dense(24, 32, act=False))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def signals(n=128):
    g = torch.Generator().manual_seed(8)
    t = torch.linspace(0, 1, 32)
    freq = 1 + 2 * torch.rand(n, 1, generator=g)
    amp = 0.5 + torch.rand(n, 1, generator=g)
    shift = torch.rand(n, 1, generator=g)
    return amp * torch.sin(6.28 * (freq * t + shift)) + 0.05 * torch.randn(n, 32, generator=g)


def build(rank):
    with torch.device("meta"):
        net = AutoEncoder()
    for part in (net.encoder, net.decoder):
        fully_shard(part)
    fully_shard(net)
    net.to_empty(device="cpu")
    torch.manual_seed(SEED + rank)
    for module in net.modules():
        if isinstance(module, Dense):
            module.init_weights()
    return net


def train():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = build(rank)
    data = TensorDataset(signals())
    sampler = DistributedSampler(data, seed=SEED)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        running = 0.0
        for (x,) in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(x), x)
            loss.backward()
            opt.step()
            running += loss.item()
        if rank == 0:
            print(f"[{epoch}] reconstruction {running / len(loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
