"""wrong: the optimizer has two parameter groups (with and without weight decay) but only the gradients of the first group are averaged; biases and norms are stepped with local gradients.

cause: only the first parameter group is all-reduced, the no-decay group stays local
cure: loop over all groups in opt.param_groups (or over net.parameters())
line: for p in opt.param_groups[0]["params"]:
"""
import torch
import torch.distributed as dist
import torch.nn as nn

torch.manual_seed(80)
X = torch.randn(96, 10)
y = torch.randint(0, 5, (96,))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(10, 20)
        self.ln = nn.LayerNorm(20)
        self.b = nn.Linear(20, 5)

    def forward(self, x):
        return self.b(torch.relu(self.ln(self.a(x))))


def make_net():
    return Net()


def split_decay(net):
    decay = [p for p in net.parameters() if p.ndim > 1]
    no_decay = [p for p in net.parameters() if p.ndim <= 1]
    return [
        {"params": decay, "weight_decay": 0.1},
        {"params": no_decay, "weight_decay": 0.0},
    ]


def reduce_gradients(opt):
    size = float(dist.get_world_size())
    for p in opt.param_groups[0]["params"]:
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= size


def train(net, batches):
    for t in net.state_dict().values():
        dist.broadcast(t, 0)
    opt = torch.optim.AdamW(split_decay(net), lr=3e-3)
    for xb, yb in batches:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(xb), yb)
        loss.backward()
        reduce_gradients(opt)
        opt.step()
