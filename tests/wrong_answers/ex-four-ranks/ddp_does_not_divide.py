times = 4 * 2
