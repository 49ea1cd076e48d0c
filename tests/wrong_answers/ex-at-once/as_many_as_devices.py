"""Forgets that the sum is not shared."""

times_as_fast = 4
