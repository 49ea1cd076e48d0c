times = 2 / 2
