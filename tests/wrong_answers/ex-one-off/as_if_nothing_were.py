"""The sum of all three gradients of step 2."""

sum_on_rank_1 = 40 + 41 + 42
