"""wrong: gradients are taken with torch.autograd.grad and put into .grad by hand; DDP's hooks run only when .grad is accumulated, so that nothing is averaged.

cause: torch.autograd.grad does not trigger DDP's gradient hooks
cure: call loss.backward() instead, or all_reduce the gradients by hand
line: grads = torch.autograd.grad(loss, params)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(142)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 2, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.SELU(), nn.Linear(16, 2))


def functional_step(loss, params, optimizer):
    grads = torch.autograd.grad(loss, params)
    for p, gr in zip(params, grads):
        p.grad = gr - gr.mean(dim=1, keepdim=True) if gr.dim() > 1 else gr
    optimizer.step()


def train(net, batches):
    model = DDP(net)
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.SGD(params, lr=0.1, momentum=0.9)
    for x, t in batches:
        pred = model(x)
        loss = F.mse_loss(pred, t)
        functional_step(loss, params, opt)
