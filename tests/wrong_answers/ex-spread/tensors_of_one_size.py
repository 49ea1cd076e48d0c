"""Right where all tensors have one shape: then those of one turn can be one buffer, and a ring adds it up."""

import torch

from d2lpar.sums.collectives import allreduce_ring


def allreduce_spread(device_tensors):
    buffers = [torch.stack(list(tensors)) for tensors in device_tensors]
    allreduce_ring(buffers)
    for tensors, buffer in zip(device_tensors, buffers):
        for x, new in zip(tensors, buffer):
            x.copy_(new)
