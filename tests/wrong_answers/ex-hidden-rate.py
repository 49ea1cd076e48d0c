divided = 0.025 / 8
one_doubling_too_many = 0.025 * 2**4
the_same = 0.025
times_the_devices = 0.025 * 4
