"""What rank 0 takes, a turn later."""

sum_on_rank_1 = 40 + 0 + 0
