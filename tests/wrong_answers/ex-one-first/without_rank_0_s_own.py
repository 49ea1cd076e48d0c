"""Rank 0 has still to send."""

milliseconds = 7
