"""wrong: each rank clips the norm of its own gradient before the hand-written averaging, so the mean of clipped local gradients takes the place of the clipped mean gradient.

cause: gradient clipping happens before the gradients are averaged over ranks
cure: call clip_grad_norm_ after average_grads
line: nn.utils.clip_grad_norm_(net.parameters(), MAX_NORM)
"""
import torch
import torch.distributed as dist
import torch.nn as nn

torch.manual_seed(60)
X = torch.randn(96, 8, 4)
y = X.cumsum(1)[:, -1, :2] * 0.5

MAX_NORM = 0.1


class Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 12, batch_first=True)
        self.out = nn.Linear(12, 2)

    def forward(self, x):
        _, (h, _) = self.rnn(x)
        return self.out(h[-1])


def make_net():
    return Seq()


def average_grads(net, world):
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad.div_(world)


def train(net, batches):
    world = dist.get_world_size()
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.SGD(net.parameters(), lr=0.5)
    for seq, target in batches:
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(seq), target)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), MAX_NORM)
        average_grads(net, world)
        opt.step()
