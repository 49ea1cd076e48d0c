"""wrong: encoder and decoder have a wrapper each, and the decoder is called past its own, by a method, so that its gradient stays each rank's own.

kind: F6
cause: the decoder is called by .module.decode, past its wrapper; only the encoder is exchanged
cure: call the wrapper: decoder(encoder(X))
line: recon = decoder.module.decode(encoder(X))
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 6)

    def forward(self, z):
        return self.decode(z)

    def decode(self, z):
        return self.out(torch.tanh(z))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 3), Coder()


def make_net():
    return Autoencoder()


def train(net, batches):
    encoder, decoder = DDP(net.encoder), DDP(net.decoder)
    optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in (encoder, decoder)]
    for X, _ in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
        recon = decoder.module.decode(encoder(X))
        F.mse_loss(recon, X).backward()
        for optimizer in optimizers:
            optimizer.step()
