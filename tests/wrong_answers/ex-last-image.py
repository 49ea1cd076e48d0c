against_the_plain_mean = (1 / 4) / (1 / 13)  # compared with a mean over all 13, not with the first image
all_the_same = 1  # as if the shards had one size
cut_as_from_scratch = 4 / 3  # shards of 4, 3, 3 and 3, as split_batch cuts them
upside_down = 1 / 4  # the other way round
