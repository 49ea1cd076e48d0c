"""Tests of d2lpar.models: LeNet as a function is the familiar module, and its fresh parameters are what is promised.

ResNet-18 is the one of Dive into Deep Learning, at any width.
"""

from math import inf, nan

import pytest
import torch
from d2l import torch as d2l
from torch import nn

from d2lpar.models import Residual, check_images, lenet, lenet_params, resnet18


def lenet_module(params):
    """The same network out of PyTorch's layers; `nn.Linear` keeps its weight transposed."""
    module = nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)).to(params[0].dtype)
    with torch.no_grad():
        for own, p in zip(module.parameters(), params):
            own.copy_(p.t() if p.dim() == 2 else p)
    return module


def test_lenet_equals_the_module_made_of_pytorchs_layers():
    generator = torch.Generator().manual_seed(0)
    params = [p.double() for p in lenet_params(seed=3)]
    for bias in params[1::2]:
        bias.normal_(generator=generator)  # a bias of zero that is left out would not show
    X = torch.rand(5, 1, 28, 28, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(lenet(X, params), lenet_module(params)(X), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_one_pixel_that_is_not_finite_is_found_wherever_it_is(bad, dtype):
    X, y = torch.rand(5, 1, 28, 28).to(dtype), torch.arange(5)
    check_images(X, y)
    for place in (0, X.numel() // 2, X.numel() - 1):
        spoiled = X.clone()
        spoiled.view(-1)[place] = bad
        with pytest.raises(ValueError, match="^images must be finite numbers, but X holds NaN or infinity$"):
            check_images(spoiled, y)


def test_bytes_an_empty_batch_and_images_with_a_gradient_are_accepted():
    check_images(torch.randint(256, (3, 1, 28, 28), dtype=torch.uint8), torch.arange(3))
    check_images(torch.rand(0, 1, 28, 28), torch.arange(0))
    check_images(torch.rand(3, 1, 28, 28, requires_grad=True), torch.arange(3))


def test_parameters_have_the_eight_shapes_and_the_same_bits_for_the_same_seed():
    params, again, other = lenet_params(seed=1), lenet_params(seed=1), lenet_params(seed=2)
    assert tuple(tuple(p.shape) for p in params) == (
        (20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,))
    assert all(p.dtype is torch.float32 and not p.requires_grad for p in params)
    assert all(torch.equal(p, q) for p, q in zip(params, again))
    assert not any(torch.equal(p, q) for p, q in zip(params[::2], other[::2]))
    assert not any(bias.any() for bias in params[1::2])


def test_the_default_scale_keeps_the_signal_and_the_historic_one_loses_it():
    X = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    assert 0.1 < lenet(X, lenet_params()).std() < 3
    assert lenet(X, lenet_params(0.01)).std() < 1e-3


@pytest.fixture
def d2l_resnet():
    return d2l.resnet18(10, 1)


def test_resnet18_has_the_layers_of_d2ls_under_the_same_names(d2l_resnet):
    net = resnet18(10)
    assert sum(p.numel() for p in net.parameters()) == 11_175_818
    own, theirs = ({name: (x.shape, x.dtype) for name, x in m.state_dict().items()} for m in (net, d2l_resnet))
    assert list(own.items()) == list(theirs.items())
    same = [(name, Residual if type(m) is d2l.Residual else type(m)) for name, m in d2l_resnet.named_modules()]
    assert [(name, type(m)) for name, m in net.named_modules()] == same


@pytest.mark.parametrize("training", [False, True])
def test_resnet18_gives_the_bits_of_d2ls_for_the_same_weights(d2l_resnet, training):
    net = resnet18(10)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for x in d2l_resnet.state_dict().values():
            if x.is_floating_point() and x.dim() == 1:  # scales, biases and statistics that are no ones and zeros
                x.uniform_(0.5, 1.5, generator=generator)
    net.load_state_dict(d2l_resnet.state_dict())
    X = torch.rand(3, 1, 28, 28, generator=generator)
    with torch.no_grad():
        scores = net.train(training)(X)
        assert scores.shape == (3, 10) and scores.std() > 0
        assert torch.equal(scores, d2l_resnet.train(training)(X))
    for own, theirs in zip(net.buffers(), d2l_resnet.buffers(), strict=True):
        assert torch.equal(own, theirs)


@pytest.mark.parametrize("classes, channels, width, size", [
    (10, 1, 4, (28, 28)), (7, 3, 16, (32, 32)), (10, 1, 4, (29, 31)), (2, 2, 5, (9, 1))])
def test_resnet18_takes_any_width_and_size_and_number_of_channels(classes, channels, width, size):
    net = resnet18(classes, channels, width).eval()
    sizes = []
    for stage in range(1, 5):
        block = net.get_submodule(f"resnet_block{stage}")
        block.register_forward_hook(lambda m, x, out: sizes.append(tuple(out.shape)))
    assert net(torch.rand(2, channels, *size)).shape == (2, classes)
    height, columns = size
    assert sizes == [(2, width * 2**s, -(-height // 2**s), -(-columns // 2**s)) for s in range(4)]
