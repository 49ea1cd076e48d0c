against_all_steps = 195 * 256 / 80
no_difference = 1
of_fashion_mnist = 256 / 96
the_share = 80 / 256
what_is_missing = 256 / (256 - 80)
