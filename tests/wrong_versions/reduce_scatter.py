def the_ring_goes_on_for_one_round_too_many(data):
    """k rounds: each rank adds its own values once more."""
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(1, k + 1):
            exchange(chunks, [(r, (r + 1) % k, (r - step) % k) for r in range(k)], add=True)


def the_wrong_chunk_is_complete(data):
    """Chunk r sets out from rank r, so rank r completes chunk r + 1."""
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(k - 1):
            exchange(chunks, [(r, (r + 1) % k, (r - step) % k) for r in range(k)], add=True)


def always_the_same_chunk(data):
    """Each rank sends its left neighbour's chunk in every round."""
    k = len(data)
    with cut(data, k) as chunks:
        for _ in range(1, k):
            exchange(chunks, [(r, (r + 1) % k, (r - 1) % k) for r in range(k)], add=True)


def chunks_replace(data):
    """Chunks replace the values they find."""
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(1, k):
            exchange(chunks, [(r, (r + 1) % k, (r - step) % k) for r in range(k)], add=False)


def whole_buffers(data):
    """A naive sum, which leaves every chunk complete on every rank."""
    with cut(data, 1) as whole:
        for rank in range(1, len(data)):
            exchange(whole, [(rank, 0, 0)], add=True)
        for rank in range(1, len(data)):
            exchange(whole, [(0, rank, 0)], add=False)


def not_around_the_ring(data):
    """Each chunk goes directly to its owner."""
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(1, k):
            exchange(chunks, [(r, (r + step) % k, (r + step) % k) for r in range(k)], add=True)


def chunks_of_whole_buffers(data):
    """The buffers are not cut."""
    k = len(data)
    with cut(data, 1) as chunks:
        for step in range(1, k):
            exchange(chunks, [(r, (r + 1) % k, (r - step) % k) for r in range(k)], add=True)
