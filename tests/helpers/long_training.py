"""Trainings of many steps, for two processes to compare: one bit that is off anywhere shows in their hash."""

import hashlib

import torch

from d2lpar import get_params, train_batch
from d2lpar.one_step.models import lenet_params

CPU = torch.device("cpu")


def train_lenet_200_steps():
    """A hash of all the bits of all replicas in 200 steps from scratch on four virtual devices."""
    torch.set_num_threads(1)
    device_params = [get_params(lenet_params(), CPU) for _ in range(4)]
    generator, digest = torch.Generator().manual_seed(0), hashlib.sha256()
    for _ in range(200):
        X, y = torch.rand(9, 1, 28, 28, generator=generator), torch.randint(10, (9,), generator=generator)
        train_batch(X, y, device_params, [CPU] * 4, 0.05)
        for params in device_params:
            for p in params:
                digest.update(p.detach().numpy().tobytes())
    assert all(p.isfinite().all() for params in device_params for p in params)
    assert (params[0] - lenet_params()[0]).norm() > 0.1
    return digest.hexdigest()
