"""Right, but a copy of every batch is kept."""

import torch


def mean_and_variance(batches):
    whole = torch.cat([batch.clone() for batch in batches]).double()
    return whole.mean((0, 2, 3)), whole.var((0, 2, 3), correction=0)
