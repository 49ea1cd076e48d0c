"""The check of the exercise `ex-spread`."""

from math import ceil

import torch

from d2lpar.models import lenet_params
from d2lpar.pages.message_audit import AuditError, audit


def check(allreduce_spread):
    """What is not right yet of the answer, in words, or "Right."."""
    five = [torch.zeros(size) for size in (5, 1, 4, 2, 3)]
    for k, tensors in ((4, lenet_params()), (3, five)):
        generator, n = torch.Generator().manual_seed(k), len(tensors)
        gradients = [[torch.randn(p.shape, generator=generator) for p in tensors]
                     for _ in range(k)]
        exact = [sum(x.double() for x in replicas) for replicas in zip(*gradients)]
        try:
            meter = audit(allreduce_spread, gradients)
        except AuditError as error:
            return f"Not yet: {error}."
        for i in range(n):
            for rank in range(k):
                if not torch.allclose(gradients[rank][i].double(), exact[i], atol=1e-5):
                    return f"Not yet: on rank {rank}, tensor {i} is not the sum."
        expected = [sum(4 * p.numel() * (k - 1 if i % k == rank else 1)
                        for i, p in enumerate(tensors)) for rank in range(k)]
        if meter.sent_bytes != expected:
            return ("Not yet: the sums are right, but the ranks send "
                    f"{meter.sent_bytes} bytes instead of {expected}.")
        rounds = ceil(n / k) * 2 * (k - 1)
        if meter.num_rounds > rounds:
            return (f"Not yet: the sums and the bytes are right, but {n} tensors on {k} "
                    f"devices take {meter.num_rounds} rounds instead of {rounds}.")
    return "Right."
