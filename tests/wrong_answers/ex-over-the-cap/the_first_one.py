"""The first bucket."""

megabytes = 0.5 + 1
