numbers_sent = 129_068 * 6  # rank 0 sends to itself
