examples = 64 * 8
