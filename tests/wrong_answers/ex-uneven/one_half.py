"""The reduce-scatter alone."""

numbers_sent = 2 + 1
