"""Tests of d2lpar/trainer.py: every strategy trains the same, and a state holds all that the next step depends on."""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from d2lpar import trainer
from d2lpar.one_step.yardstick import distance, same_bits
from d2lpar.pages.drill import differing
from d2lpar.processes.checkpoints import newest_checkpoint, save_checkpoint
from d2lpar.trainer import Refused, Stopped, Training

SMALL = "--num-train=140 --num-test=70 --batch-size=24"  # six minibatches an epoch, the last one of 20
ALL = "--optimizer=adam --lr=0.002 --warmup=15 --flip"  # a state of every kind
RESNET = "--model=resnet18 --width=4 --float64"


def training_of(words: str, *more: Any) -> Training:
    """A training of few images on the ranks that there are."""
    parser = argparse.ArgumentParser()
    trainer.add_options(parser)
    args = parser.parse_args(f"{SMALL} {words}".split())
    trainer.check_options(args, dist.get_world_size())
    return Training(args, *more)


def advance(training: Training, steps: int) -> list[float]:
    """Make so many updates, as `fit` does; their losses."""
    losses = []
    for _ in range(steps):
        losses.append(training.take_step(*next(training.batches()))[0])
        if training.step % training.per_epoch == 0:
            training.epoch_loss = 0.0
    return losses


def values(training: Training) -> list[torch.Tensor]:
    """The parameters, as they are now."""
    return [p.detach().clone() for p in training.module.parameters()]


def trained(rank: int, words: str, steps: int = 20) -> tuple[list[torch.Tensor], list[float]]:
    training = training_of(words)
    return training, advance(training, steps), values(training)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is rank 0 of 1, on the CPU, and no process group is left."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    trainer.join(60)
    yield
    dist.destroy_process_group()
