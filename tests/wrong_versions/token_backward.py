from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn import functional as F


def mean_of_means(model, batches, bf16=False):
    """Every batch has the same weight."""
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            share = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / len(batches)
            share.backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def divided_twice(model, batches, bf16=False):
    """DDP divides by the number of ranks, too."""
    count = sum((y != -100).sum() for _, y in batches)
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
            share.backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item()


def own_tokens(model, batches, bf16=False):
    """Divides by the tokens of this rank alone."""
    count = sum((y != -100).sum() for _, y in batches)
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
            share.backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def padding_counts(model, batches, bf16=False):
    """Counts the targets that are ignored, too."""
    count = torch.tensor(sum(y.numel() for _, y in batches))
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
            (share * dist.get_world_size()).backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item()


def an_exchange_each_time(model, batches, bf16=False):
    """Without no_sync: right, but every pass is exchanged."""
    count = sum((y != -100).sum() for _, y in batches)
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for x, y in batches:
        share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
        (share * dist.get_world_size()).backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item()


def never_exchanged(model, batches, bf16=False):
    """The last pass is inside no_sync as well."""
    count = sum((y != -100).sum() for _, y in batches)
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for x, y in batches:
        with model.no_sync():
            share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
            (share * dist.get_world_size()).backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item()


def the_loss_of_this_rank(model, batches, bf16=False):
    """The shares of the loss are never added up."""
    count = sum((y != -100).sum() for _, y in batches)
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
            (share * dist.get_world_size()).backward()
        mean = mean + share.detach()
    return mean.item()


def ignores_bf16(model, batches, bf16=False):
    """Always computes in float32."""
    count = sum((y != -100).sum() for _, y in batches)
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
            (share * dist.get_world_size()).backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item()


def always_bf16(model, batches, bf16=False):
    """Always computes in bfloat16."""
    count = sum((y != -100).sum() for _, y in batches)
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            with torch.autocast(x.device.type, torch.bfloat16, enabled=True):
                share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
            (share * dist.get_world_size()).backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item()


def without_the_argument(model, batches):
    """Knows no bf16."""
    count = sum((y != -100).sum() for _, y in batches)
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
            (share * dist.get_world_size()).backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item()


def weighted_means(model, batches, bf16=False):
    """A mean times its number of tokens: NaN if there is none."""
    count = sum((y != -100).sum() for _, y in batches)
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            with torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
                mean_of_batch = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            share = mean_of_batch * (y != -100).sum() / count
            (share * dist.get_world_size()).backward()
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item()


def one_pass(model, batches, bf16=False):
    """All micro-batches in one pass: no accumulation."""
    x, y = (torch.cat([batch[j].flatten() for batch in batches])[None] for j in (0, 1))
    count = (y != -100).sum()
    dist.all_reduce(count)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
        share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
    (share * dist.get_world_size()).backward()
    mean = share.detach().double()
    dist.all_reduce(mean)
    return mean.item()
