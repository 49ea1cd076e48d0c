"""Right for the first tensor of every owner."""

from d2lpar.sums.messages import exchange


def allreduce_spread(device_tensors):
    k = len(device_tensors)
    for step in range(1, k):
        exchange(device_tensors, [((i + step) % k, i, i) for i in range(k)], add=True)
    for step in range(1, k):
        exchange(device_tensors, [(i, (i + step) % k, i) for i in range(k)], add=False)
