all_is_lost = 2 * (10 / 28800) ** 0.5  # as if a failure always cost the whole interval
only_one_half = (5 / 28800) ** 0.5  # the writing, without what is done again
in_percent = 2.64
every_hour = 10 / 3600 + 3600 / 57600
the_seconds = 759  # the interval, not the share
