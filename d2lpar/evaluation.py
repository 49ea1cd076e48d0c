"""A test set that the ranks of a group share: how many answers are right, each example counted once (chapter 6)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from d2lpar.checks import check_labels, check_module
from d2lpar.concise import count_right
from d2lpar.ranks import rank_device


@torch.no_grad()
def evaluate_on_ranks(
    net: nn.Module, data_iter: Iterable[tuple[Tensor, Tensor]]
) -> tuple[int, int]:
    """How many examples of all ranks are put into the right class, and of how many.

    Every rank calls it with its replica, on its device, and with minibatches of its
    own, as many as it has, or none. Two whole numbers are summed up, once.
    Taught in: notebooks/06_processes_and_ddp.ipynb
    """
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    was_training = [(m, m.training) for m in module.modules()]
    try:
        module.eval()
        for X, y in data_iter:
            check_labels(X, y)
            right += count_right(module, X.to(device), y.to(device))
            count += len(y)
    finally:
        for m, training in was_training:
            m.training = training
    totals = torch.tensor([right, count], device=device)
    dist.all_reduce(totals)
    right, count = totals.tolist()
    return right, count


def unwrap_ddp(net: nn.Module) -> nn.Module:
    """The module that the library's DDP has wrapped: it sends no buffers, so a rank may have more minibatches.

    Raises ValueError if that is not the outermost wrapper.
    """
    check_module(net)
    inner = net.module if isinstance(net, DistributedDataParallel) else net
    if any(isinstance(m, DistributedDataParallel) for m in inner.modules()):
        raise ValueError("there is a DistributedDataParallel within the network, whose forward pass may wait for other "
                         "ranks: hand over what it has wrapped, its .module")
    return inner
