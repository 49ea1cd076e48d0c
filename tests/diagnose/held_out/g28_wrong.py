"""wrong: to save memory every parameter is stepped in a post-accumulate-grad hook during backward; these hooks run before DDP's reduction, so each parameter is updated with the rank's own gradient.

cause: optimizer step runs inside backward, before the gradients are all-reduced
cure: step after backward has returned, or all_reduce and average p.grad inside the hook before stepping
line: p.register_post_accumulate_grad_hook(step_now)
"""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(280)
X = torch.randn(96, 14)
y = torch.randint(0, 3, (96,))


class Wide(nn.Module):
    def __init__(self, d=14, h=40):
        super().__init__()
        self.up = nn.Linear(d, h)
        self.gate = nn.Linear(d, h)
        self.down = nn.Linear(h, 3)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def make_net():
    return Wide()


def fuse_optimizer_into_backward(model, lr):
    optims = {p: torch.optim.SGD([p], lr=lr) for p in model.parameters()}

    def step_now(p):
        optims[p].step()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step_now)
    return optims


def train(net, batches):
    model = DDP(net)
    fuse_optimizer_into_backward(model, lr=0.1)
    for xb, yb in batches:
        for p in model.parameters():
            p.grad = None
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()   # updates the weights as it goes
