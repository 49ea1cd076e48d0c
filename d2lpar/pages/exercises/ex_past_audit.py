"""The check of the exercise `ex-past-audit`."""

from unittest.mock import patch

import torch

from d2lpar.collectives import Meter
from d2lpar.pages.message_audit import AuditError, audit


def check(sly_sum):
    """What is not right yet of the answer, in words, or "Right."."""
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(840, generator=generator) for _ in range(4)]
    exact = sum(x.double() for x in start)

    def right(data):
        return all(torch.allclose(x.double(), exact, atol=1e-5) for x in data)

    data = [x.clone() for x in start]
    try:
        audit(sly_sum, data)
    except AuditError as error:
        return f"Not yet: the audit says: {error}."
    if not right(data):
        return "Not yet: your function passes the audit, but not every rank holds the sum."
    data = [x.clone() for x in start]
    with patch.object(Meter, "carry", lambda meter, message, x: torch.zeros_like(x)), Meter([x.device for x in data]):
        sly_sum(data)
    if not right(data):
        return "Not yet: with zeros in all messages the sum is wrong, so your function is honest."
    return "Right."
