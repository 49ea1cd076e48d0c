rate = 0.025 / 8
