examples = 4 * 250e6 / 25e9 / 0.01
