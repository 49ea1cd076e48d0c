numbers_sent = 129_068 * 2  # only the way there
