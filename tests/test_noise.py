"""Tests of d2lpar.larger_batches: the noise scale is that of a distribution that is known."""

from math import inf

import pytest
import torch

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
def test_what_has_no_noise_scale_is_refused(gradients):
    with pytest.raises(ValueError, match="gradients must be"):
        noise_scale(gradients, 8)
