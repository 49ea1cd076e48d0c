"""All replicas are called on their shards, but the number is replica 0's."""

from torch.nn import functional as F

from d2lpar import run_on_devices, split_batch


def mean_loss(replicas, devices, data_iter):
    total = count = 0
    for X, y in data_iter:
        run_on_devices(lambda replica, X, y: replica(X), replicas, *split_batch(X, y, devices))
        total += F.cross_entropy(replicas[0].forward(X), y, reduction="sum").item()
        count += len(y)
    return total / count
