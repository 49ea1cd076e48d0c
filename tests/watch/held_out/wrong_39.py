"""U-shaped autoencoder on 1d signals: encoder and decoder are separate models with one optimizer."""
import itertools
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Signals(Dataset):
    def __init__(self, n=168, length=32):
        g = torch.Generator().manual_seed(77)
        f = torch.rand(n, 1, generator=g) * 2 + 0.5
        t = torch.linspace(0, 6.28, length)
        self.clean = torch.sin(f * t)
        self.noisy = self.clean + 0.3 * torch.randn(n, length, generator=g)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return self.noisy[i].unsqueeze(0), self.clean[i].unsqueeze(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(1, 8, 4, stride=2, padding=1)
        self.b = nn.Conv1d(8, 12, 4, stride=2, padding=1)

    def forward(self, x):
        return torch.relu(self.b(torch.relu(self.a(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.ConvTranspose1d(12, 8, 4, stride=2, padding=1)
        self.b = nn.ConvTranspose1d(8, 1, 4, stride=2, padding=1)

    def forward(self, z):
        return self.b(torch.relu(self.a(z)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    encoder, decoder = Encoder(), Decoder()
    encoder = DDP(encoder)
    optimizer = torch.optim.Adam(itertools.chain(encoder.parameters(), decoder.parameters()), lr=3e-3)
    ds = Signals()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=14, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for noisy, clean in loader:
            loss = nn.functional.mse_loss(decoder(encoder(noisy)), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if os.environ["RANK"] == "0":
            print("epoch", epoch, "mse", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
