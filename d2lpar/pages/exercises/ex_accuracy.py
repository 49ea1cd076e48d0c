"""The check of the exercise `ex-accuracy`."""

import torch
from torch.nn import functional as F

from d2lpar.base.devices import try_devices
from d2lpar.one_step.models import lenet, lenet_params
from d2lpar.one_step.scratch import get_params, split_batch
from d2lpar.one_step.yardstick import same_bits


def with_images(evaluate, replicas, *arguments):
    """What `evaluate` returns, and how many images went through each replica."""
    seen, plain_conv2d = [0] * len(replicas), F.conv2d

    def conv2d(X, weight, *rest):
        for rank, (W1, *_) in enumerate(replicas):
            if weight.data_ptr() == W1.data_ptr():
                seen[rank] += len(X)
        return plain_conv2d(X, weight, *rest)

    F.conv2d = conv2d
    try:
        return evaluate(replicas, *arguments), seen
    finally:
        F.conv2d = plain_conv2d


def check(evaluate_accuracy_on):
    """Each replica has weights of its own, so that the count shows who was asked."""
    for k in (2, 3, 4):
        k_devices, sets, wrong, images = try_devices(k), [], 0, [0] * k
        replicas = [get_params(lenet_params(seed=i), d)
                    for i, d in enumerate(k_devices)]
        for n in (16, 7, 5, 1):
            X = torch.randn(n, 1, 28, 28, generator=torch.Generator().manual_seed(n))
            shards, _ = split_batch(X, X, k_devices)
            y = [lenet(s, p).argmax(1).cpu() for s, p in zip(shards, replicas)]
            images = [count + len(labels) for count, labels in zip(images, y)]
            changed = torch.arange(n) < (n + k) // 5  # these labels are made wrong
            sets.append((X, (torch.cat(y) + changed) % 10))
            wrong += changed.sum().item()
        before, count = [get_params(p, p[0].device) for p in replicas], sum(images)
        answer, seen = with_images(evaluate_accuracy_on, replicas, k_devices, sets)
        if not isinstance(answer, float):
            return f"Not yet: return a share from 0 to 1; you return {answer!r}."
        if not all(map(same_bits, zip(replicas, before))):
            return "Not yet: the replicas have changed."
        if answer != (count - wrong) / count:
            return (f"Not yet: {k} replicas that judge their own shards count "
                    f"{count - wrong} of {count} right; you, {answer * count:.3g}.")
        if seen != images:
            return f"Not yet: {images} images are to go through replicas, not {seen}."
    return "Right."
