"""Fills from the first layer on: 6, and then 2, 3 and 1."""

megabytes = 6 + 2
