"""right: the decoder's weight is tied to the embedding inside the constructor, so DDP sees one parameter and reduces its summed gradient once."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

V = 24
gen = torch.Generator().manual_seed(12)
X = torch.randint(V, (96, 5), generator=gen)
y = torch.randint(V, (96,), generator=gen)


class CBOW(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.decoder = nn.Linear(dim, vocab)
        self.decoder.weight = self.embed.weight

    def forward(self, ctx):
        h = self.embed(ctx).mean(1)
        return self.decoder(torch.tanh(self.mix(h)))


def make_net():
    return CBOW(V, 12)


def train(net, batches):
    model = DDP(net)
    optim = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for ctx, word in batches:
        optim.zero_grad()
        nll = -F.log_softmax(model(ctx), dim=-1).gather(1, word[:, None]).mean()
        nll.backward()
        optim.step()
