def even_batches(num_examples, batch_size):
    return [batch_size] * (num_examples // batch_size)
