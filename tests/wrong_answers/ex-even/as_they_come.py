def even_batches(num_examples, batch_size):
    whole, rest = divmod(num_examples, batch_size)
    return [batch_size] * whole + [rest] * (rest > 0)
