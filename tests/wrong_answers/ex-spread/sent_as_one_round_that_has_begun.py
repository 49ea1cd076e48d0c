"""Games the count: one round is begun, and all later messages are said to be of it too."""

from d2lpar.sums.messages import deliver, exchange


def allreduce_spread(device_tensors):
    k = len(device_tensors)
    for i in range(len(device_tensors[0])):
        for rank in set(range(k)) - {i % k}:
            if i == 0 and rank == 1:
                exchange(device_tensors, [(1, 0, 0)], add=True)
            else:
                deliver(rank, i % k, device_tensors[rank][i], device_tensors[i % k][i], add=True, round=0)
        for rank in set(range(k)) - {i % k}:
            deliver(i % k, rank, device_tensors[i % k][i], device_tensors[rank][i], add=False, round=0)
