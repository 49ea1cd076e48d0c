"""A sending and a receiving are one message."""

milliseconds = 2 * 8
