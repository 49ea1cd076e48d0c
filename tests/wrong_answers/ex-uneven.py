another_rank = 5  # what ranks 0 and 2 send
every_chunk_twice = 2 * 4  # its own chunk, and that of its right neighbour, leave it once only
one_half = 2 + 1  # the reduce-scatter alone
the_formula_for_equal_chunks = 2 * (3 - 1) / 3 * 4  # 2 (k - 1) / k of the buffer: right where all chunks have one size
