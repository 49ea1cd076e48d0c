"""Trainings of many steps, for two processes to compare: one bit that is off anywhere shows in their hash."""

import hashlib

import torch
from torch import nn
from torch.nn import functional as F

from d2lpar import get_params, train_batch
from d2lpar.one_step.data_parallel import DataParallel
from d2lpar.one_step.models import lenet_params
from helpers.modules import known, rand

CPU = torch.device("cpu")


def train_200_steps():
    """A hash of all the bits after 200 steps of SGD on four virtual devices."""
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3), nn.Tanh(),
                        nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    net[8].weight = net[6].weight
    known(net)
    parallel = DataParallel(net, [CPU] * 4)
    trainer = torch.optim.SGD(parallel.parameters(), 0.05, momentum=0.9)
    X, y = rand(10, 1, 6, 6, dtype=torch.float32), torch.arange(10) % 3
    first = F.cross_entropy(parallel(X), y)
    for _ in range(200):
        trainer.zero_grad()
        loss = F.cross_entropy(parallel(X), y)
        loss.backward()
        trainer.step()
    assert loss < first / 2
    return hashlib.sha256(b"".join(x.numpy().tobytes() for x in net.state_dict().values())).hexdigest()


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
