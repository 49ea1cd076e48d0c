"""No alpha."""

milliseconds = 2 * 4 * 2
