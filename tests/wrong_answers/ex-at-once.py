a_sum_for_each_device = 4 * (2 + 4 + 1) / (2 + 4 + 1)  # lets every device add up once in the loop
as_many_as_devices = 4  # forgets that the sum is not shared
the_sum_once_for_the_threads_four_times = 25 / (2 + 4 + 4 * 1)  # the sum is taken for each thread
the_threads_length = 7  # the length of one timeline, not how the two compare
upside_down = 7 / 25  # how much of the time is left
