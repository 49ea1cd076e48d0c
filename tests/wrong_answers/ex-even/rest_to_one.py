def even_batches(num_examples, batch_size):
    sizes = [batch_size] * max(1, num_examples // batch_size)
    sizes[-1] += num_examples - sum(sizes)
    return sizes
