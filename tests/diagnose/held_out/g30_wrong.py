"""wrong: two losses of one DDP forward are backpropagated in two backward calls; DDP reduces only in the first, the second adds the rank's own gradient on top without reduction.

cause: second backward after one forward is not synchronised, since DDP reduces once per forward
cure: add the losses and call backward once: (main + aux).backward()
line: aux.backward()
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(301)
X = torch.randn(96, 10)
y = torch.randint(0, 4, (96,))


class ClassifyAndReconstruct(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(10, 18), nn.ReLU(), nn.Linear(18, 8))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(8, 4 + 10))

    def forward(self, x):
        out = self.head(self.enc(x))
        return out[:, :4], out[:, 4:]


def make_net():
    return ClassifyAndReconstruct()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
    for x, label in batches:
        opt.zero_grad()
        logits, recon = model(x)
        main = F.cross_entropy(logits, label)
        aux = 0.5 * F.mse_loss(recon, x)
        main.backward(retain_graph=True)
        aux.backward()
        opt.step()
