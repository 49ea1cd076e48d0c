"""Tests of d2lpar.larger_batches: the noise scale of a known distribution, and what has no noise scale."""

from math import inf

import pytest
import torch

from d2lpar import allreduce
from d2lpar.larger_batches import noise_scale


def test_three_gradients_by_hand():
    # mean (3, 0), squared distances 1, 1 and 0: noise 1; signal 9 - 1/3; b = 26
    assert noise_scale(torch.tensor([[3.0, 1.0], [3.0, -1.0], [3.0, 0.0]]), 26) == pytest.approx(26 / (9 - 1 / 3))


@pytest.mark.parametrize("b", [1, 4, 16])
def test_it_is_the_one_of_the_distribution_whatever_the_size_of_the_pieces(b):
    # gradients of single examples: mean of length 2, noise of 25 numbers with variance 4 each, so B = 100 / 4
    generator = torch.Generator().manual_seed(0)
    mean = torch.full((25,), 0.4, dtype=torch.float64)
    examples = mean + 2 * torch.randn(64_000, 25, generator=generator, dtype=torch.float64)
    assert noise_scale(examples.view(-1, b, 25).mean(1), b) == pytest.approx(25, rel=0.1)


def test_few_noisy_gradients_are_not_taken_for_a_signal():
    # the plain mean of squares would call the length of the noise a gradient
    assert noise_scale(torch.tensor([[1.0, 0.0], [-1.0, 0.1]]), 8) == inf


@pytest.mark.parametrize("gradients", [torch.ones(1, 3), torch.ones(3), torch.tensor([[1.0], [float("nan")]])])
def test_gradients_without_a_noise_scale_are_refused(gradients):
    with pytest.raises(ValueError, match="gradients must be"):
        noise_scale(gradients, 8)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_gradients_taken_after_the_exchange_are_refused_and_the_same_ones_before_it_are_not(k):
    # once added up they are all equal: the noise would be 0.0, or rounding, and so would the batch size
    gradients = torch.rand(k, 5, generator=torch.Generator().manual_seed(k)) + 1
    assert noise_scale(gradients, 4) > 0.01
    allreduce(list(gradients))
    for after in (gradients, gradients / k):
        with pytest.raises(ValueError, match=f"all {k} rows are equal, as they are after an allreduce.* before the exchange"):
            noise_scale(after, 4)
