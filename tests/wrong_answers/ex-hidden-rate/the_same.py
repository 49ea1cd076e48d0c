rate = 0.025
