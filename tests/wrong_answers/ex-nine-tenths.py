a_tenth_of_the_computing = 20 / 3 * 8  # the sum is to be a tenth of the step, not of the computing
by_the_eight_alone = 7.2  # nine tenths of 8 images
of_both_ranks = 96  # the images of two ranks together
the_milliseconds = 18  # how long a rank computes, in ms, not how many images
times_of_eight = 6  # how many times 8 images
