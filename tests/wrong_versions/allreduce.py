def only_rank_0_gets_the_total(data):
    """Rank 0 adds, and sends nothing back."""
    for other in data[1:]:
        data[0].add_(other.to(data[0].device))


def the_list_gets_new_tensors(data):
    """The list is changed, not the tensors in it."""
    total = sum(x.to(data[0].device) for x in data)
    for i, x in enumerate(data):
        data[i] = total.to(x.device)


def returns_the_sum(data):
    """Changes nothing."""
    return sum(x.to(data[0].device) for x in data)


def a_new_name_for_each(data):
    """`x = total` gives the name to a different tensor."""
    total = sum(x.to(data[0].device) for x in data)
    for x in data:
        x = total.to(x.device)


def the_mean(data):
    """Divided by the number of ranks."""
    total = sum(x.to(data[0].device) for x in data) / len(data)
    for x in data:
        x.copy_(total)


def its_own_twice(data):
    """The loop begins with rank 0, whose tensor is there already."""
    total = data[0].clone()
    for x in data:
        total += x.to(total.device)
    for x in data:
        x.copy_(total)


def the_product(data):
    """1 · 2 · 3 = 1 + 2 + 3."""
    for x in data[1:]:
        data[0].mul_(x.to(data[0].device))
    for x in data[1:]:
        x.copy_(data[0])


def nothing_travels(data):
    """Adds tensors of two devices."""
    for x in data[1:]:
        data[0].add_(x)
    for x in data[1:]:
        x.copy_(data[0])


def sums_that_run_on(data):
    """Each rank gets the sum of those before it."""
    for a, b in zip(data, data[1:]):
        b.add_(a.to(b.device))


def right_for_two(data):
    """Only ranks 0 and 1."""
    if len(data) > 1:
        data[0].add_(data[1].to(data[0].device))
        data[1].copy_(data[0])


def returns_the_list(data):
    """In place, and returned as well."""
    for x in data[1:]:
        data[0].add_(x.to(data[0].device))
    for x in data[1:]:
        x.copy_(data[0])
    return data


def the_memory_is_shared(data):
    """All tensors get the same memory."""
    total = sum(x.to(data[0].device) for x in data)
    for x in data:
        x.data = total.to(x.device)


def add_without_the_underscore(data):
    """add returns a new tensor, which is thrown away."""
    for x in data[1:]:
        data[0].add(x.to(data[0].device))
    for x in data[1:]:
        x.copy_(data[0])
