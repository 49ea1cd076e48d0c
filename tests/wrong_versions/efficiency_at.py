import numpy as np


def fitted(runs, relative=True):
    k, each, seconds = np.array(runs, float).T
    scale = seconds if relative else np.ones(len(runs))
    terms = np.stack([each / scale, (k > 1) / scale], axis=1)
    return np.linalg.lstsq(terms, seconds / scale, rcond=None)[0]


def same_everywhere(batch, runs, factor=1):
    """The efficiency of the first two runs, whatever the batch."""
    return runs[0][2] / runs[1][2]


def added_grows(batch, runs, factor=1):
    """The added time grows with the batch."""
    example_s, added_s = fitted(runs)
    return batch * example_s / (batch * example_s + factor * added_s * batch / 32)


def factor_forgotten(batch, runs, factor=1):
    """The factor is not used."""
    example_s, added_s = fitted(runs)
    return batch * example_s / (batch * example_s + added_s)


def by_k(batch, runs, factor=1):
    """The number of devices takes the place of whether there are several."""
    k, each, seconds = np.array(runs, float).T
    terms = np.stack([each / seconds, k / seconds], axis=1)
    example_s, added_s = np.linalg.lstsq(terms, np.ones(len(runs)), rcond=None)[0]
    return batch * example_s / (batch * example_s + factor * added_s)


def in_seconds(batch, runs, factor=1):
    """Ordinary least squares, in which the longest step counts most."""
    example_s, added_s = fitted(runs, relative=False)
    return batch * example_s / (batch * example_s + factor * added_s)
