"""Tests of d2lpar.scratch: the yardstick itself must be right, and must be able to say no."""

import pytest
import torch
from torch import nn

from d2lpar.models import lenet, lenet_params
from d2lpar.pages.cells import without_checks
from d2lpar.scratch import distance, one_worker, same_bits


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(7, 1, 28, 28, dtype=torch.float64, generator=generator), torch.arange(7)


def test_one_worker_does_what_pytorchs_sgd_does_with_the_mean_loss(batch):
    X, y = batch
    params = [p.double().requires_grad_() for p in lenet_params(seed=1)]
    ours = one_worker(X, y, params, lr=0.3)
    optimizer = torch.optim.SGD(params, lr=0.3)
    nn.functional.cross_entropy(lenet(X, params), y).backward()
    optimizer.step()
    assert distance(ours, params) <= 1e-12


def test_one_worker_leaves_the_parameters_and_their_gradients_alone(batch):
    params = [p.double().requires_grad_() for p in lenet_params()]
    before = [p.detach().clone() for p in params]
    after = one_worker(*batch, params, lr=0.3)
    assert same_bits([before, params]) and all(p.grad is None for p in params)
    assert all(not torch.equal(p, q) for p, q in zip(before, after)), "every tensor moves"


def test_distance_is_the_largest_of_the_tensors_and_relative():
    assert distance([torch.tensor([3.0, 4.0])], [torch.tensor([0.0, 4.0])]) == 0.75
    near, far = torch.tensor([100.0]), torch.tensor([1.0])
    assert distance([near, far], [near, 4 * far]) == 0.75, "a wrong tensor is not hidden by the others"


@pytest.mark.parametrize("replica, entry", [(1, 0), (2, 0), (2, 1)])
def test_same_bits_notices_one_changed_bit_in_any_replica(replica, entry):
    replicas = [[torch.ones(3), torch.zeros(2)] for _ in range(3)]
    assert same_bits(replicas)
    replicas[replica][entry][-1] = torch.nextafter(replicas[replica][entry][-1], torch.tensor(2.0))
    assert not same_bits(replicas)


def test_the_parameters_of_networks_need_not_be_made_lists_first():
    nets = [nn.Linear(3, 2) for _ in range(2)]
    assert distance(nets[0].parameters(), nets[0].parameters()) == 0 < distance(*[net.parameters() for net in nets])
    assert same_bits([nets[0].parameters(), nets[0].parameters()]) and not same_bits(net.parameters() for net in nets)


ONES, NAN = torch.ones(3), torch.full((3,), torch.nan)


@pytest.mark.parametrize("ours, theirs, far", [
    ([ONES, torch.tensor([1.0, torch.nan, 1.0])], [ONES, ONES], torch.inf),
    ([NAN, ONES], [ONES, ONES], torch.inf),
    ([ONES], [NAN], torch.inf),
    ([NAN], [NAN], torch.inf),
    ([ONES * torch.inf], [ONES], torch.inf),
    ([ONES], [0 * ONES], torch.inf),
    ([0 * ONES], [0 * ONES], 0.0),
    ([0 * ONES], [ONES], 1.0),
    ([ONES * 1e-30 * 2], [ONES * 1e-30], 1.0),
    ([ONES * 1e30 * 2], [ONES * 1e30], 1.0),
])
def test_nan_is_infinitely_far_and_zero_is_at_no_distance_from_zero(ours, theirs, far):
    assert distance(ours, theirs) == far


def test_nan_has_the_bits_of_nothing():
    assert not same_bits([[ONES, NAN], [ONES, NAN]])


@pytest.mark.parametrize("x, y", [(ONES, ONES.double()), (torch.tensor(0.0), torch.tensor(-0.0)),
                                  (torch.ones(2, dtype=torch.int64), torch.ones(2))])
def test_equal_numbers_of_other_bits_are_not_the_same(x, y):
    assert not same_bits([[x], [y]]) and same_bits([[x], [x.clone()]])


@pytest.mark.parametrize("ours, theirs", [([ONES], [ONES, ONES]), ([ONES, ONES], [ONES]), ([], []), ([], [ONES]),
                                          ([ONES], [ONES[:2]]), ([torch.ones(3, 1)], [torch.ones(1, 3)])])
def test_a_tensor_that_is_missing_or_of_another_shape_is_an_error(ours, theirs):
    for compare in (lambda: distance(ours, theirs), lambda: same_bits([theirs, theirs or [ONES], ours])):
        with pytest.raises(ValueError, match="each tensor needs a counterpart of the same shape"):
            compare()


def test_the_yardstick_that_a_reader_writes_misses_no_tensor_and_no_nan_either():
    one, nan = torch.ones(2), torch.tensor([1.0, float("nan")])
    far, same = without_checks(distance, same_bits)
    for ours, theirs in (([one], [one, one]), ([one, one], [one])):
        with pytest.raises(ValueError):
            far(ours, theirs)
        with pytest.raises(ValueError):
            same([ours, theirs])
    assert far([nan], [one]) == far([one], [nan]) == float("inf") and not same([[nan], [nan]])
