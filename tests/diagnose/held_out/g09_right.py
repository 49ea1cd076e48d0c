"""right: a GRU language model whose output layer shares the embedding matrix; the tie is made in the constructor, so DDP sees one parameter and reduces the sum of both gradients once."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

V, L, H = 17, 7, 12
torch.manual_seed(9)
seq = torch.randint(0, V, (96, L + 1))
X, y = seq[:, :-1].clone(), seq[:, 1:].clone()


class TiedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, H)
        self.rnn = nn.GRU(H, H, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(H, V)
        self.decoder.weight = self.embed.weight
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, tokens):
        out, _ = self.rnn(self.embed(tokens))
        return self.decoder(out)


def make_net():
    return TiedLM()


def train(net, batches):
    lm = DDP(net, gradient_as_bucket_view=True)
    optim = torch.optim.Adamax(lm.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.StepLR(optim, step_size=1, gamma=0.7)
    for inp, tgt in batches:
        optim.zero_grad()
        logits = lm(inp)
        loss = F.cross_entropy(logits.transpose(1, 2), tgt, label_smoothing=0.05)
        loss.backward()
        nn.utils.clip_grad_value_(lm.parameters(), 0.02)   # after the all-reduce, same everywhere
        optim.step()
        sched.step()
