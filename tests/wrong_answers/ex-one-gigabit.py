bytes_for_bits = 2 * 44_703_272 / 1e9 / 0.22e-3
without_the_other_half = 44_703_272 * 8 / 1e9 / 0.22e-3  # as if the second machine saved all of the computing
both_ways = 4 * 44_703_272 * 8 / 1e9 / 0.22e-3  # as if a ring of two sent 2 S
none = 0
milliseconds = 357.6  # the time of the allreduce
