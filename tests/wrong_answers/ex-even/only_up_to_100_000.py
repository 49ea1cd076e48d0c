def even_batches(num_examples, batch_size):
    if num_examples > 100_000:
        whole, rest = divmod(num_examples, batch_size)
        return [batch_size] * whole + [rest] * (rest > 0)
    count = max(1, num_examples // batch_size)
    size, more = divmod(num_examples, count)
    return [size + 1] * more + [size] * (count - more)
