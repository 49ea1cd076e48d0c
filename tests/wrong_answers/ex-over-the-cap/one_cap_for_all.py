"""Forgets that the first cap is smaller."""

megabytes = 0.5 + 1 + 3 + 2
