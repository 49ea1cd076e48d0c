def even_batches(num_examples, batch_size):
    count = max(1, num_examples // batch_size)
    return [num_examples / count] * count
