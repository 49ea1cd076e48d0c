without_the_ranks = 2**19 / (4 * 2048)
without_the_rows = 2**19 / (8 * 2048)
neither = 2**19 / 2048
in_rows = 2**19 / (8 * 4)
tokens_of_a_pass = 8 * 4 * 2048
upside_down = 8 * 4 * 2048 / 2**19
one_too_few = 7
