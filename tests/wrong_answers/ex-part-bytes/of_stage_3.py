"""All three are divided, as in stage 3."""

gigabytes = 4 * 1.5 * 3 / 8
