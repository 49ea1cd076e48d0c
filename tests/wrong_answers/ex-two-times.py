a_round_too_many = 2 * 5 * 2.1  # k rounds in each half
bytes_alone = 2 * 4 * 2  # no alpha
in_seconds = 0.0168  # right, but in seconds
one_half = 4 * 2.1  # the reduce-scatter alone
the_naive_sum = 8 * 10.1  # whole buffers in every round
