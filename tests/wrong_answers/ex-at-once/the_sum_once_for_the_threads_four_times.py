"""The sum is taken for each thread."""

times_as_fast = 25 / (2 + 4 + 4 * 1)
