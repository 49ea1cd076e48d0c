on_all_ranks = 4 * 1.6 * 4 / 32  # a single row of 32
over_the_machines = 4 * 1.6 * 4 / 4  # cut across the rows instead of within them
whole = 4 * 1.6 * 4  # as DDP
one_moment = 4 * 1.6 * 3 / 8  # momentum instead of Adam
values = 1.6 * 4 / 8  # billions of values, not of bytes
