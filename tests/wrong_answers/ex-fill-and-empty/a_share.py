"""The share, not the number of micro-batches."""

micro_batches = 0.9
