"""Whole buffers in every round."""

milliseconds = 8 * 10.1
