"""2 (k - 1) / k of the buffer: right where all chunks have one size."""

numbers_sent = 2 * (3 - 1) / 3 * 4
