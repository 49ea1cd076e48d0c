times = 256 / 96
