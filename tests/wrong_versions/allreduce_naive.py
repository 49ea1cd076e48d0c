def the_total_is_not_sent_back(data):
    """Rank 0 gets the sum, and the others keep what they had."""
    with cut(data, 1) as whole:
        for rank in range(1, len(data)):
            exchange(whole, [(rank, 0, 0)], add=True)


def the_total_is_added(data):
    """On the way back, the total is added to what is there."""
    with cut(data, 1) as whole:
        for rank in range(1, len(data)):
            exchange(whole, [(rank, 0, 0)], add=True)
        for rank in range(1, len(data)):
            exchange(whole, [(0, rank, 0)], add=True)


def source_and_target_are_swapped(data):
    """The first loop sends from rank 0."""
    with cut(data, 1) as whole:
        for rank in range(1, len(data)):
            exchange(whole, [(0, rank, 0)], add=True)
        for rank in range(1, len(data)):
            exchange(whole, [(rank, 0, 0)], add=False)


def all_at_once(data):
    """All ranks send to rank 0 in one round."""
    with cut(data, 1) as whole:
        exchange(whole, [(rank, 0, 0) for rank in range(1, len(data))], add=True)
        exchange(whole, [(0, rank, 0) for rank in range(1, len(data))], add=False)


def without_messages(data):
    """It adds the buffers directly."""
    for x in data[1:]:
        data[0] += x
    for x in data[1:]:
        x.copy_(data[0])


def zeros_are_sent(data):
    """The messages are those of an allreduce, but the sum comes straight from the buffers."""
    total = sum(data)
    allreduce_naive([torch.zeros_like(x) for x in data])
    for x in data:
        x.copy_(total)
