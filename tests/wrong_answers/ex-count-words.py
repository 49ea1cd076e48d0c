import torch
from torch import distributed as dist
from torch.nn import functional as F


def counts_sentences(scores, y):
    count = torch.tensor(len(y))
    dist.all_reduce(count)
    return F.cross_entropy(scores, y, reduction="sum") / count * dist.get_world_size()


def counts_what_is_left_out(scores, y):
    return F.cross_entropy(scores, y, reduction="sum") / y.numel()


def ddp_divides_again(scores, y):
    count = (y != -100).sum()
    dist.all_reduce(count)
    return F.cross_entropy(scores, y, reduction="sum") / count


def right_on_two_ranks_only(scores, y):
    count = (y != -100).sum()
    dist.all_reduce(count)
    return F.cross_entropy(scores, y, reduction="sum") / count * 2


def the_mean_over_the_shard(scores, y):
    return F.cross_entropy(scores, y)


def two_for_any_number_of_ranks(scores, y):
    count = (y != -100).sum()
    dist.all_reduce(count)
    return F.cross_entropy(scores, y, reduction="sum") / count * (1 if dist.get_world_size() == 1 else 2)
