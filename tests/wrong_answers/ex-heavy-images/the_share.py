times = 80 / 256
