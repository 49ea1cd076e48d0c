"""The reduce-scatter alone."""

milliseconds = 4 * 2.1
