"""Counts four units of waiting, not three."""

micro_batches = 36
