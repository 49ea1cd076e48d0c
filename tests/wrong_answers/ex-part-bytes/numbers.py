"""Billions of numbers, not of bytes."""

gigabytes = 1.5 * (1 + 1 / 8 + 1 / 8)
