"""The sums are right, but no message is sent."""


def allreduce_spread(device_tensors):
    for replicas in zip(*device_tensors):
        total = sum(replicas)
        for x in replicas:
            x.copy_(total)
