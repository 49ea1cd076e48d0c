"""Tests of d2lpar.larger_batches: micro-batches give the gradient of the whole minibatch, as devices do."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from d2lpar import run_on_devices, split_batch, try_devices
from d2lpar.devices import run_on_device_0
from d2lpar.larger_batches import accumulate_gradients
from d2lpar.models import loss
from d2lpar.scratch import distance, same_bits


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)).double()


def batch(n, dtype=torch.float64):
    generator = torch.Generator().manual_seed(n)
    return torch.rand(n, 6, generator=generator, dtype=dtype), torch.randint(4, (n,), generator=generator)


def gradients(net):
    return [p.grad for p in net.parameters()]


@pytest.mark.parametrize("n", [1, 2, 7, 12, 33])
def test_every_number_of_microbatches_gives_the_gradient_and_the_loss_of_the_whole(net, n):
    X, y = batch(n)
    mean = F.cross_entropy(net(X), y)
    right = torch.autograd.grad(mean, list(net.parameters()))
    for m in range(1, n + 1):
        net.zero_grad()
        assert abs(accumulate_gradients(net, X, y, m) - mean.item()) < 1e-12
        assert distance(gradients(net), right) < 1e-12, m


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("n, k", [(32, 4), (33, 4), (6, 3)])
@pytest.mark.parametrize("norm", [nn.Identity, nn.BatchNorm1d])
def test_microbatches_on_one_device_give_the_bits_of_as_many_devices_with_batchnorm_too(norm, n, k):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), norm(5), nn.Tanh(), nn.Linear(5, 4))
    X, y = batch(n, torch.float32)

    def of_shard(A, c, replica):
        return torch.autograd.grad(loss(replica(A), c).sum() / n, list(replica.parameters()))

    shards = split_batch(X, y, try_devices(k))
    found = run_on_devices(of_shard, *shards, [copy.deepcopy(net) for _ in range(k)])
    in_rank_order = [sum(grads[1:], grads[0]) for grads in zip(*found)]
    run_on_device_0(accumulate_gradients, net, X, y, k)
    assert same_bits([gradients(net), in_rank_order])


def test_gradients_are_added_to_those_that_are_there(net):
    X, y = batch(6)
    accumulate_gradients(net, X, y, 2)
    once = [g.clone() for g in gradients(net)]
    accumulate_gradients(net, X, y, 3)
    assert distance(gradients(net), [2 * g for g in once]) < 1e-12


def test_batch_norm_takes_the_statistics_of_each_microbatch_and_moves_its_own_as_often():
    X, y = batch(8)
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).double()
    other = copy.deepcopy(net)
    accumulate_gradients(net, X, y, 1)
    accumulate_gradients(other, X, y, 4)
    assert (net[1].num_batches_tracked.item(), other[1].num_batches_tracked.item()) == (1, 4)
    assert distance([net[0].weight.grad], [other[0].weight.grad]) > 0.1
