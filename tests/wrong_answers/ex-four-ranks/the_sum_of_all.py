times = 2
