"""Tests of d2lpar.larger_batches.schedules: the rates are those of a hand and of torch, and a rule without sense is refused."""

from math import isclose, sqrt

import pytest
import torch
from torch.optim.lr_scheduler import LinearLR

from d2lpar.larger_batches.schedules import linear_lr, sqrt_lr, total_batch_size, warmup_lr


def test_four_times_the_batch_is_four_times_the_rate_by_one_rule_and_twice_by_the_other():
    assert (linear_lr(0.1, 4), sqrt_lr(0.1, 4)) == (0.4, 0.2)
    assert (linear_lr(0.1, 1), sqrt_lr(0.1, 1)) == (0.1, 0.1), "the same batch, the same rate"
    assert isclose(sqrt_lr(0.1, 1.5) ** 2, 0.015) and isclose(sqrt_lr(1, 8), 2 * sqrt(2))


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


def test_the_batch_size_counts_all_examples_of_an_update():
    assert total_batch_size(8, 4, 2) == 64 and total_batch_size(8, 4) == 32 and total_batch_size(5, 1) == 5
