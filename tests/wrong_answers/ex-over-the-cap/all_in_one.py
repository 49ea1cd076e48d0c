"""All of them."""

megabytes = 6 + 2 + 3 + 1 + 0.5
