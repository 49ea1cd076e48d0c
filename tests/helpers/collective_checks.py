"""Checks that a collective passes or not, on one case: what it leaves, in which bits, after which messages."""

from functools import partial

import numpy as np
import torch

from d2lpar import try_devices
from d2lpar.collectives import Meter
from d2lpar.pages.message_audit import AuditError, audit
from helpers.traffic import Traffic


def same_bits(a, b):
    """Unlike torch.equal, takes a NaN for equal to itself and 0.0 for different from -0.0."""
    bits_a, bits_b = (x.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for x in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits_a, bits_b)


def assert_sum(result, terms, what=""):
    """Integers, which wrap around, must be exact.

    Of k floats added in any order, each of the k - 1 sums is off by half an eps of it at most, and it is not larger
    than the sum of the absolute values by more than rounding: k * eps * sum|x| bounds the error twice over.
    """
    stacked = torch.stack([x.clone() for x in terms])
    if result.is_floating_point():
        wide = stacked.double()
        bound = len(terms) * torch.finfo(result.dtype).eps * wide.abs().sum(0)
        error = (result.double() - wide.sum(0)).abs()
        assert bool((error <= bound).all()), f"{what}: off by {error.max()}"
    else:
        expected = stacked.numpy().sum(0, dtype=stacked.numpy().dtype)
        assert np.array_equal(result.numpy(), expected), what


def check_sums(algorithm, case):
    """In every entry of the list lies the sum of all buffers."""
    data = case.buffers()
    before = [x.clone() for x in data]
    algorithm(data)
    for rank, x in enumerate(data):
        assert_sum(x, before, f"rank {rank}")


def check_in_place(algorithm, case):
    """The entries of the list are the caller's tensors as before, and memory beside them is untouched."""
    bases, masks = case.bases(), case.bases(torch.bool)
    case.fill(bases)
    data = case.views(bases)
    for mask in case.views(masks):
        mask.fill_(True)
    buffers, before = list(data), [base.clone() for base in bases]
    assert algorithm(data) is None
    assert all(slot is buffer for slot, buffer in zip(data, buffers)), "a list slot was rebound"
    for base, old, mask in zip(bases, before, masks):
        assert same_bits(base[~mask], old[~mask]), "memory between or behind the elements has changed"


def check_bits_equal_on_all_devices(algorithm, case):
    """All replicas end with the same bits, even if they are NaN, infinite or a zero with a sign."""
    for odd in (False, True):
        data = case.buffers(odd=odd)
        algorithm(data)
        assert all(same_bits(x, data[0]) for x in data)


def check_bits_equal_in_two_runs(algorithm, case):
    for odd in (False, True):
        first, second = case.buffers(odd=odd), case.buffers(odd=odd)
        algorithm(first)
        algorithm(second)
        assert all(same_bits(x, y) for x, y in zip(first, second))


def check_meter(algorithm, case, theory):
    """Messages, rounds and bytes are those of the theory; in a round no rank sends or receives twice."""
    data = case.buffers()
    with Meter(try_devices(case.ranks)) as meter:
        algorithm(data)
    counted = Traffic([sorted(sizes) for sizes in meter.rounds], sorted(m.size_bytes for m in meter.messages),
                      meter.sent_bytes, [sum(m.size_bytes for m in meter.messages if m.target == rank) for rank in range(case.ranks)])
    assert counted == theory(case)
    for number in range(meter.num_rounds):
        for end in ("source", "target"):
            ranks = [getattr(m, end) for m in meter.messages if m.round == number]
            assert len(ranks) == len(set(ranks)), f"round {number}: a rank is {end} twice"
    spans = meter.spans
    assert sorted(span.rank for span in spans) == sorted(m.target for m in meter.messages)
    assert all(0 <= span.start_s <= span.end_s and span.what in ("add", "copy") for span in spans)


def check_audit(algorithm, case):
    """Numbers go from rank to rank by messages alone."""
    try:
        audit(algorithm, case.buffers())
    except AuditError as error:
        raise AssertionError(error) from None


SUMS, PLACE, DEVICES, RUNS, METER = "sums", "in place", "bits on all devices", "bits in two runs", "meter"
AUDIT = "audit"


def caught_by(algorithm, case, theory):
    """The names of the checks that fail."""
    checks = {SUMS: check_sums, PLACE: check_in_place, DEVICES: check_bits_equal_on_all_devices,
              RUNS: check_bits_equal_in_two_runs, METER: partial(check_meter, theory=theory), AUDIT: check_audit}
    failed = set()
    for name, check in checks.items():
        try:
            check(algorithm, case)
        except AssertionError:
            failed.add(name)
    return failed
