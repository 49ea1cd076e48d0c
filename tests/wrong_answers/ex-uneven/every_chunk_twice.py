"""Its own chunk, and that of its right neighbour, leave it once only."""

numbers_sent = 2 * 4
