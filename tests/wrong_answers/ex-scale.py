a_mean_of_three_means = 2 / 12 / 3
ddp_divides_too = 1 / 12
divided_by_the_ranks_again = 1 / 12 / 2
micro_batches_for_ranks = 3 / 12
times_the_ranks_twice = 2 * 2 / 12
