numbers_sent = 2 * 3 * 2 * 129_068  # everybody to everybody
