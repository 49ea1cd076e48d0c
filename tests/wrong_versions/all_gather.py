def it_begins_with_the_wrong_chunk(data):
    """It sends what reduce_scatter sends, without adding."""
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(1, k):
            exchange(chunks, [(r, (r + 1) % k, (r - step) % k) for r in range(k)], add=False)


def it_adds(data):
    """The complete chunks are added to what is there."""
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(k, 2 * k - 1):
            exchange(chunks, [(r, (r + 1) % k, (r - step) % k) for r in range(k)], add=True)


def only_the_own_chunk(data):
    """Every rank sends its own chunk each time, and passes nothing on."""
    k = len(data)
    with cut(data, k) as chunks:
        for _ in range(k - 1):
            exchange(chunks, [(r, (r + 1) % k, r) for r in range(k)], add=False)


def one_round_more(data):
    """k rounds, of which the last brings nothing new."""
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(k):
            exchange(chunks, [(r, (r + 1) % k, (r - step) % k) for r in range(k)], add=False)


def it_returns_the_whole(data):
    """It returns new tensors, and leaves the buffers."""
    k = len(data)
    whole = torch.cat([x.view(-1).tensor_split(k)[r] for r, x in enumerate(data)])
    return [whole.clone() for _ in data]
