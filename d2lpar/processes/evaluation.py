"""A test set that the ranks of a group share: how many answers are right, each example counted once."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lpar.one_step.concise import count_right, labelled
from d2lpar.processes.ranks import rank_device


def unwrap_ddp(net: nn.Module) -> nn.Module:
    """The module that the library's DDP has wrapped: it sends no buffers, so a rank may have more minibatches.

    Raises ValueError if that is not the outermost wrapper.
    """
    inner = net.module if isinstance(net, DistributedDataParallel) else net
    if any(isinstance(m, DistributedDataParallel) for m in inner.modules()):
        raise ValueError("there is a DistributedDataParallel within the network, whose forward pass may wait for other "
                         "ranks: hand over what it has wrapped, its .module")
    return inner


@torch.no_grad()
def count_right_on_ranks(net, data_iter):
    """How many examples of all ranks are put into the right class, and of how many.
    Every rank calls it with its replica on its device, and its own minibatches.

    Each rank's minibatches are its own, as many as it has, or none. Two whole numbers are summed up, once.
    """
    data_iter = labelled(data_iter)  # package only
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    was_training = [(m, m.training) for m in module.modules()]
    try:
        module.eval()
        for X, y in data_iter:
            right += count_right(module, X.to(device), y.to(device))
            count += len(y)
    finally:
        for m, training in was_training:
            m.training = training
    totals = torch.tensor([right, count], device=device)
    dist.all_reduce(totals)
    right, count = totals.tolist()
    return right, count
