"""Nothing is divided."""

gigabytes = 4 * 1.5 * 3
