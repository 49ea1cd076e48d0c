"""Part III, larger batches: pieces of a minibatch, the rate that goes with its size, and BatchNorm."""
