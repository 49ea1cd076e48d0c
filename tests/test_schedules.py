"""Tests of d2lpar.larger_batches: the rates are those of a hand and of torch, and a rule without sense is refused."""

from math import isclose

import pytest
import torch
from torch.optim.lr_scheduler import LinearLR

from d2lpar.larger_batches import linear_lr, warmup_lr


def test_four_times_the_batch_is_four_times_the_rate_and_the_same_batch_the_same_rate():
    assert (linear_lr(0.1, 4), linear_lr(0.1, 1)) == (0.4, 0.1) and isclose(linear_lr(0.1, 1.5), 0.15)


def test_a_warmup_of_four_updates_goes_from_the_rate_of_one_device_straight_to_that_of_three():
    rates = [warmup_lr(step, 0.2, 3, 4, 6) for step in range(6)]
    assert all(map(isclose, rates, [0.2, 0.3, 0.4, 0.5, 0.6, 0.6]))


def test_without_a_warmup_and_on_one_device_the_rate_is_constant():
    assert {warmup_lr(step, 0.2, 3, 0, 5) for step in range(5)} == {warmup_lr(4, 0.2, 3, 4, 5)}
    assert {warmup_lr(step, 0.2, 1, 3, 5) for step in range(5)} == {0.2}


def test_a_warmup_as_long_as_the_run_is_allowed_and_ends_one_update_before_the_full_rate():
    assert isclose(warmup_lr(3, 0.1, 5, 4, 4), 0.1 * (1 + 4 * 3 / 4))


@pytest.mark.parametrize("k, warmup", [(2, 1), (4, 5), (8, 20), (1, 7)])
def test_the_warmup_is_that_of_torch(k, warmup):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=linear_lr(0.1, k))
    schedule = LinearLR(optimizer, start_factor=1 / k, total_iters=warmup)
    for step in range(25):
        assert isclose(schedule.get_last_lr()[0], warmup_lr(step, 0.1, k, warmup, 25), rel_tol=1e-12)
        optimizer.step()
        schedule.step()


