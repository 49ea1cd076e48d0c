each_doubling_gains_the_same = (14.0 / 8.8 / 2) ** 3  # each doubling gains as much as the first
in_percent = 100 * 14.0 / 4.9 / 8
that_of_two_gpus = 14.0 / 8.8 / 2  # the efficiency that two GPUs have
the_speed_up = 14.0 / (3.6 + 10.4 / 8)  # the speed-up, not yet divided by eight
what_is_saved_is_what_is_shared = 14.0 / (8.8 + 5.2 / 8) / 8  # what the second GPU saves is taken for all that can be shared
