"""Puts the loss a turn too late."""

sum_on_rank_1 = 1 + 41 + 42
