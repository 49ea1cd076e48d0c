"""Lets every device add up once in the loop."""

times_as_fast = 4 * (2 + 4 + 1) / (2 + 4 + 1)
