times = 1 / 4
