from torch import nn
from torch.nn import functional as F

from d2lpar import run_on_devices, split_batch


def every_replica_does_all(replicas, devices, data_iter):
    """Every device computes everything, and the mean over the devices is right."""
    total = count = 0
    for X, y in data_iter:
        for replica in replicas:
            total += F.cross_entropy(replica(X), y, reduction="sum").item()
            count += len(y)
    return total / count


def mean_of_the_shards_means(replicas, devices, data_iter):
    """The mean of the shards' means, as if shards and batches were equal."""
    def loss(replica, X, y):
        return F.cross_entropy(replica(X), y).item() if len(y) else None

    means = [mean for X, y in data_iter for mean in run_on_devices(loss, replicas, *split_batch(X, y, devices))
             if mean is not None]
    return sum(means) / len(means)


def mean_times_length(replicas, devices, data_iter):
    """Mean times length is NaN on an empty shard."""
    def loss(replica, X, y):
        return F.cross_entropy(replica(X), y).item() * len(y)

    total = count = 0
    for X, y in data_iter:
        total += sum(run_on_devices(loss, replicas, *split_batch(X, y, devices)))
        count += len(y)
    return total / count


def one_replica_does_all(replicas, devices, data_iter):
    """The right number, computed on one device."""
    total = count = 0
    for X, y in data_iter:
        total += F.cross_entropy(replicas[0](X.to(devices[0])), y.to(devices[0]), reduction="sum").item()
        count += len(y)
    return total / count


def sum_not_divided(replicas, devices, data_iter):
    """The sum of all losses, not their mean."""
    def mean(replica, X, y):
        return nn.functional.cross_entropy(replica(X), y).item() * len(y) if len(y) else 0.0

    return sum(sum(run_on_devices(mean, replicas, *split_batch(X, y, devices))) for X, y in data_iter)
