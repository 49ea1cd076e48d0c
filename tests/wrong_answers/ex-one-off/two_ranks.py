"""Two ranks, as on the page."""

sum_on_rank_1 = 0 + 41
