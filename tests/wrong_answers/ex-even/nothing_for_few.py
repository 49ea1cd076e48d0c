def even_batches(num_examples, batch_size):
    count = num_examples // batch_size
    size, more = divmod(num_examples, count)
    return [size + 1] * more + [size] * (count - more)
