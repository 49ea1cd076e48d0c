times = 1
