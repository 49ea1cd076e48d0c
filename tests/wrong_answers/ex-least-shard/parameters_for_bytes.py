examples = 2 * 250e6 / 25e9 / 0.01
