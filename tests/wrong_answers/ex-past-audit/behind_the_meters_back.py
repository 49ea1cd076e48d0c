"""Remembers nothing, so the audit finds it."""

import torch


def sly_sum(data):
    total = torch.stack(data).sum(0)
    for x in data:
        x.copy_(total)
