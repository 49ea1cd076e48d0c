"""Shards of 4, 3, 3 and 3, as split_batch cuts them."""

times_as_much = 4 / 3
