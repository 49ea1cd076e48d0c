ddp_does_not_divide = 4 * 2
divided_by_four_only = 1 / 4
right_on_two_ranks = 2 / 2
the_sum_of_all = 2
