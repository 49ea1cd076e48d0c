"""The optimizer is Adam, with two numbers for each parameter."""

gigabytes = 4 * 1.5 * (1 + 1 / 8 + 2 / 8)
