"""The waiting is to be a tenth of the step, not of the computing."""

micro_batches = 30
