"""k rounds in each half."""

milliseconds = 2 * 5 * 2.1
