def NaN_and_zero_forgotten(ours, theirs):
    """One line: NaN is not infinitely far, and 0 / 0 is NaN."""
    return max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True))


def the_mean_of_the_tensors(ours, theirs):
    """The mean over the tensors hides a bad one."""
    def relative(a, b):
        far = ((a - b).norm() / b.norm()).item()
        return 0.0 if torch.equal(a, b) else far if far < inf else inf

    distances = [relative(a.double(), b.double()) for a, b in zip(ours, theirs, strict=True)]
    return sum(distances) / len(distances)


def relative_to_ours(ours, theirs):
    """Divided by the norm of the wrong tensor."""
    return _worst(ours, theirs, lambda a, b: ((a - b).norm() / a.norm()).item(), strict=True)


def a_missing_tensor_is_not_noticed(ours, theirs):
    """zip stops at the shorter list."""
    return _worst(ours, theirs, lambda a, b: ((a - b).norm() / b.norm()).item(), strict=False)


def returns_a_tensor(ours, theirs):
    """Without item()."""
    return torch.tensor(a_missing_tensor_is_not_noticed(ours, theirs))


def not_squared(ours, theirs):
    """The largest element of the difference, not its norm."""
    return _worst(ours, theirs, lambda a, b: ((a - b).abs().max() / b.norm()).item(), strict=True)


def _worst(ours, theirs, relative, strict):
    def one(a, b):
        far = relative(a, b)
        return 0.0 if torch.equal(a, b) else far if far < inf else inf

    return max(one(a.double(), b.double()) for a, b in zip(ours, theirs, strict=strict))


def NaN_only_if_it_comes_first(ours, theirs):
    """max ignores a NaN that comes later."""
    far = [0.0 if torch.equal(a, b) else ((a.double() - b.double()).norm() / b.double().norm()).item()
           for a, b in zip(ours, theirs, strict=True)]
    return inf if max(far) != max(far) else max(far)


def float32_until_the_norm(ours, theirs):
    """Subtracts before it converts."""
    return _worst_of(ours, theirs, lambda a, b: ((a - b).double().norm() / b.double().norm()).item())


def _worst_of(ours, theirs, relative):
    far = [0.0 if torch.equal(a, b) else relative(a, b) for a, b in zip(ours, theirs, strict=True)]
    return max(x if x < inf else inf for x in far)


def more_tensors_are_not_noticed(ours, theirs):
    """As many as the reference has."""
    return _worst(ours[:len(theirs)], theirs, lambda a, b: ((a - b).norm() / b.norm()).item(), strict=True)
