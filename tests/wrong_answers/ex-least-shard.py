bits = 2 * (4 * 250e6) / (25e9 / 8) / 0.01
one_way = 4 * 250e6 / 25e9 / 0.01
parameters_for_bytes = 2 * 250e6 / 25e9 / 0.01
the_minibatch = 64 * 8
