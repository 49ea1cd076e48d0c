all_is_lost = (10 * 28800) ** 0.5, 2 * 10 / (10 * 28800) ** 0.5  # as if a failure always cost the whole interval
only_one_half = 759, 0.0132  # of the share: the writing, without what is done again
in_percent = 759, 2.64
every_hour = 3600, 0.0653
all_the_time = 10, 1.0
