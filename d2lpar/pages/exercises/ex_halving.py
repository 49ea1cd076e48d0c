"""The check of the exercise `ex-halving`."""

import torch

from d2lpar.pages.message_audit import AuditError, audit


def check(allreduce_halving):
    """What is not right yet of the answer, in words, or "Right."."""
    for k in (4, 8, 2, 1):
        generator = torch.Generator().manual_seed(k)
        data = [torch.randn(16, generator=generator) for _ in range(k)]
        exact = sum(x.double() for x in data)
        try:
            meter = audit(allreduce_halving, data)
        except AuditError as error:
            return f"Not yet: {error}."
        if not all(torch.allclose(x.double(), exact, atol=1e-5) for x in data):
            return f"Not yet: with k = {k}, not every rank holds the sum."
        rounds, each = 2 * (k.bit_length() - 1), 2 * (k - 1) * 64 // k
        if meter.num_rounds != rounds:
            return (f"Not yet: with k = {k} the sums are right, but the algorithm "
                    f"takes {meter.num_rounds} rounds instead of {rounds}.")
        if meter.sent_bytes != [each] * k:
            return (f"Not yet: with k = {k} the sums are right, but for 64 bytes the "
                    f"ranks send {meter.sent_bytes} bytes instead of {each} each.")
        for source, target, size, number in meter.messages:
            if size * abs(source - target) > 32:
                return (f"Not yet: with k = {k} the rounds and the bytes are right, but in "
                        f"round {number + 1} rank {source} sends {size} of 64 bytes "
                        f"as far as rank {target}. Large messages should go to ranks "
                        "nearby.")
    return "Right."
