rate = 0.025 * 4
