cut_after_the_first = 9 / 8  # the cut of the text, where the means are -2 and -1
the_mean_of_the_means = -1  # the number itself, not yet divided by the right one
upside_down = 4 / 3  # the right mean over the mean of the means
what_is_missing = 0.25  # how much too small it is, not the factor
