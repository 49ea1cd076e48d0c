"""Compared with a mean over all 13, not with the first image."""

times_as_much = (1 / 4) / (1 / 13)
